"""Webhooks and API services of KubeVirt, CDI,
HyperConverged and medik8s whose CA has ended or ends soon.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.install.inspect import Installation, Json, Unreadable
from virt_admit.model.kubernetes import kinds, webhook_bundles
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

AHEAD: Final = timedelta(days=30)

REMEDY: Final = (
    "restart the operator that owns it; if the CA stays, delete its secret: virt-admit rules "
    "webhook-bundle-expired"
)


def ending(installation: Installation) -> Iterator[tuple[bool, str]]:
    """Yield whether a bundle has ended already, and a sentence that says so.

    Raises:
        Unreadable: the API server does not list APIServices. Other topics report unreadable webhook
            configurations.
    """
    for kind in webhook_bundles.KINDS:
        for data in _items(installation, kind):
            obj = Object({**data, "apiVersion": kind.api_version, "kind": kind.kind})
            for bundle in webhook_bundles.bundles(obj):
                ended = bundle.has_ended(installation.now)
                if ended or bundle.ends_soon(installation.now, AHEAD):
                    verb = "ended" if ended else "ends"
                    yield (
                        ended,
                        (
                            f"{kind.kind} {obj.name}: the CA in {bundle.field.path} {verb} on "
                            f"{bundle.end:%Y-%m-%d}"
                        ),
                    )


def _items(installation: Installation, kind: Kind) -> list[Json]:
    try:
        found = installation.get(f"/apis/{kind.api_version}/{kind.plural}") or {}
    except Unreadable:
        if kind is kinds.API_SERVICE:
            raise
        return []
    return found.get("items") or []
