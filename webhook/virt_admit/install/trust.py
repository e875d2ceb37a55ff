"""Whether API servers trust the certificate that the webhook serves."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from virt_admit.install.inspect import Installation
from virt_admit.install.observations import CheckResult, Status
from virt_admit.model.messages import count, names
from virt_admit.settings import CERTS_SECRET
from virt_admit_certs.certificates import Certificate, issued_by, valid
from virt_admit_certs.names import good_for, names_of
from virt_admit_certs.state import parse_bundle, parse_certs

LEAST_REMAINING: Final = 0.2
"""Fraction of a certificate's lifetime. It is renewed at half of its lifetime,
so less than this means a failure.
"""

RENEW: Final = "read the log of the issuer: the webhook, cert-manager or OpenShift's service CA"
BUNDLE: Final = (
    "run virt-admit certs status, and stop other controllers from writing caBundle "
    "(docs/install.md)"
)


def check_trust(installation: Installation) -> CheckResult:
    """Check the served certificate, and whether the registered bundles trust it."""
    for service in installation.services():
        secret_name = installation.issued_by_another() or CERTS_SECRET
        namespace, _, name = secret_name.partition("/")
        secret = installation.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        pem = base64.b64decode((secret or {}).get("data", {}).get("tls.crt") or "")
        chain = parse_certs(pem, [], "tls.crt")
        if not chain:
            text = f"Secret {secret_name} contains no certificate"
            yield Status.WRONG, text, "read the log of the webhook"
            continue
        yield from _certificate(chain[0], service.host, installation.now)
        yield from _bundles(
            {
                entry.name: _distrust(chain, entry.bundle, installation.now)
                for entry in installation.ours()
                if entry.service == service
            }
        )
    by_url = [entry for entry in installation.ours() if entry.url]
    connect = installation.connect
    yield from _bundles(
        {each.name: connect(each.url, each.bundle.decode(errors="replace")) for each in by_url}
    )


def _bundles(distrust: Mapping[str, str]) -> CheckResult:
    """Yield whether API servers trust the certificate.

    ``distrust``: the reason against it by entry, empty if trusted.
    """
    reasons: dict[str, list[str]] = {}
    for entry, reason in distrust.items():
        reasons.setdefault(reason, []).append(entry)
    for reason, found in reasons.items():
        if reason:
            yield Status.WRONG, f"{names(found)}: {reason}", BUNDLE
        else:
            trusting = count(len(found), "webhook")
            yield Status.OK, f"the certificate is trusted by the caBundle of {trusting}"


def _certificate(leaf: Certificate, host: str, now: datetime) -> CheckResult:
    expiry = f"{leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    if not good_for(leaf, host):
        text = f"the certificate is for {names(names_of(leaf)) or 'no name'}, not for {host}"
        yield Status.WRONG, text, "issue a certificate for that name"
    if not valid(leaf, now):
        begin = f"{leaf.not_valid_before_utc:%Y-%m-%d %H:%M}"
        yield Status.WRONG, f"the certificate is valid from {begin} to {expiry}", RENEW
    elif leaf.not_valid_after_utc - now < lifetime * LEAST_REMAINING:
        yield Status.WRONG, f"the certificate expires at {expiry} and was not renewed", RENEW
    else:
        yield Status.OK, f"the certificate is valid until {expiry}"


def _distrust(chain: Sequence[Certificate], bundle: bytes, now: datetime) -> str:
    """Return why API servers with this bundle reject the chain. Empty if they accept it."""
    if not bundle:
        return "caBundle is empty, so API servers trust only the CAs of their operating system"
    roots = [cert for cert in parse_bundle(bundle, []) if valid(cert, now)]
    if not roots:
        return "caBundle has no valid CA certificate"
    if _chains_to(chain[0], frozenset(chain[1:]), roots, now):
        return ""
    return "caBundle does not trust the served certificate"


def _chains_to(
    cert: Certificate,
    intermediates: frozenset[Certificate],
    roots: Sequence[Certificate],
    now: datetime,
) -> bool:
    return any(issued_by(cert, root) for root in roots) or any(
        issued_by(cert, issuer)
        and valid(issuer, now)
        and _chains_to(issuer, intermediates - {issuer}, roots, now)
        for issuer in intermediates
    )
