"""The CA bundles with which API servers trust KubeVirt, CDI, HyperConverged and medik8s,
and when they end.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object

KINDS: Final = (kinds.VALIDATING_CONFIGURATION, kinds.MUTATING_CONFIGURATION, kinds.API_SERVICE)

PRODUCTS: Final = ("kubevirt.io", "medik8s.io")
"""The ends of the API groups, and of the names of webhooks, of the products."""

_OURS: Final = ".virt-admit.io"

_OFTEN_ROTATED: Final = timedelta(days=8)
"""Operators rotate CAs with such a lifetime by themselves: KubeVirt's lives 7 days,
CDI's and HyperConverged's 2.
"""

_LEAST_REMAINING: Final = 0.1
"""Operators renew at a fifth of the lifetime or earlier,
so less than this fraction means that the rotation failed.
"""

_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)


class Bundle(NamedTuple):
    """One ``caBundle``. API servers trust it until its last certificate ends."""

    field: Field
    begin: datetime
    end: datetime
    """When the certificate begins and ends that ends last."""

    def has_ended(self, now: datetime) -> bool:
        return self.end <= now

    def ends_soon(self, now: datetime, ahead: timedelta) -> bool:
        """Whether the bundle ends within this time.

        CAs that are rotated often are judged by their lifetime.
        """
        lifetime = self.end - self.begin
        return self.end - now < (
            lifetime * _LEAST_REMAINING if lifetime <= _OFTEN_ROTATED else ahead
        )


def bundles(obj: Object) -> Iterator[Bundle]:
    """Yield the bundles of a webhook configuration or an APIService of the products,
    each distinct one once.
    """
    seen: set[str] = set()
    for field in _fields(obj):
        if field.text and field.text not in seen:
            seen.add(field.text)
            validity = _validity(field.text)
            if validity is not None:
                yield Bundle(field, *validity)


def of_others(obj: Object) -> Iterator[tuple[Field, datetime]]:
    """Yield the webhooks of other products that fail closed, each distinct bundle once, with its
    end."""
    seen: set[str] = set()
    for webhook in obj["webhooks"].items():
        text = webhook.at("clientConfig", "caBundle").text or ""
        ours = _of_a_product(webhook) or (webhook["name"].text or "").endswith(_OURS)
        if ours or webhook["failurePolicy"].text == "Ignore" or text in seen:
            continue
        seen.add(text)
        if (end := end_of(webhook)) is not None:
            yield webhook, end


def end_of(webhook: Field) -> datetime | None:
    """Return when the bundle of a webhook of any product ends; None: it has no valid one."""
    found = _validity(webhook.at("clientConfig", "caBundle").text or "")
    return found[1] if found is not None else None


def served_expired(service: Object) -> str:
    """Return what the API server says of the certificate that an APIService serves, once it has
    expired; empty: it does not.

    The API server asks its APIServices all the time
    (kube-aggregator: pkg/controllers/status/remote/remote_available_controller.go#sync).
    """
    available = service.condition("Available")
    said = available["message"].text or ""
    if available["status"].text != "False" or _EXPIRED not in said:
        return ""
    end = _END.search(said)
    return f"that ended on {end[1]}" if end is not None else "that has expired or is not valid yet"


_EXPIRED: Final = "x509: certificate has expired"
_END: Final = re.compile(r" is after (\d{4}-\d\d-\d\d)T")
"""Of Go's crypto/x509.CertificateInvalidError."""


def expiry(cluster: Cluster) -> dict[tuple[str, str], float]:
    """Return when the first bundle of each known object ends, in seconds since 1970,
    by kind and name.
    """
    ends: dict[tuple[str, str], float] = {}
    for kind in KINDS:
        for obj in cluster.known(kind):
            for bundle in bundles(obj):
                key = (kind.kind, obj.name)
                ends[key] = min(bundle.end.timestamp(), ends.get(key, math.inf))
    return ends


def _fields(obj: Object) -> Iterator[Field]:
    if kinds.of(obj) is kinds.API_SERVICE:
        spec = obj["spec"]
        if (spec["group"].text or "").endswith(PRODUCTS) and not spec[
            "insecureSkipTLSVerify"
        ].boolean:
            yield spec["caBundle"]
        return
    for webhook in obj["webhooks"].items():
        if _of_a_product(webhook):
            yield webhook["clientConfig"]["caBundle"]


def _of_a_product(webhook: Field) -> bool:
    """Whether a product owns a webhook, by the webhook's name or because it is called for the
    product's kinds alone.
    """
    name = webhook["name"].text or ""
    if name.endswith(_OURS):
        return False
    groups = [
        group.text or "" for rule in webhook["rules"].items() for group in rule["apiGroups"].items()
    ]
    return name.endswith(PRODUCTS) or (
        bool(groups) and all(group.endswith(PRODUCTS) for group in groups)
    )


def _validity(bundle: str) -> tuple[datetime, datetime] | None:
    """Return begin and end of the certificate that ends last;
    None if there is no valid certificate.
    """
    from cryptography import x509  # noqa: PLC0415 - checking other files does not need it

    try:
        pem = base64.b64decode(bundle)
    except (binascii.Error, ValueError):
        return None
    found: list[tuple[datetime, datetime]] = []
    for text in _CERTIFICATE.findall(pem):
        try:
            certificate = x509.load_pem_x509_certificate(text)
            found.append((certificate.not_valid_before_utc, certificate.not_valid_after_utc))
        except ValueError:
            continue
    return max(found, key=lambda validity: validity[1], default=None)
