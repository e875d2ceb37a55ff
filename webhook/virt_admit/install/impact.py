"""What API servers reject now because our webhook has ``failurePolicy: Fail`` and cannot answer,
and what they let pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.install.inspect import InspectedEntry, Installation, Unreadable
from virt_admit.install.manifests import MAY_FAIL, NAME
from virt_admit.model.messages import names

EMERGENCY_EXIT: Final = (
    "admit these requests again: kubectl delete "
    f"validatingwebhookconfiguration,mutatingwebhookconfiguration {NAME}"
)

_FAILED_OPEN: Final = re.compile(
    r'^apiserver_admission_webhook_fail_open_count\{[^}]*name="([^"]+)\.virt-admit\.io"[^}]*\} '
    r"(\S+)$",
    re.MULTILINE,
)


def failed_open(metrics: str) -> dict[str, float]:
    """Return by webhook how many requests passed without a response,
    from the metrics of an API server.
    """
    return {name: float(number) for name, number in _FAILED_OPEN.findall(metrics)}


def rejected_now(installation: Installation) -> Iterator[str]:
    """Yield what is rejected now, and why. Nothing for an entry whose state cannot be read."""
    for entry in installation.ours() if _readable(installation) else ():
        reason = _unanswered(installation, entry) if entry.fails else ""
        if reason:
            what = (
                "VMs"
                if entry.name in MAY_FAIL
                else names(sorted({resource for _, _, resource, _ in entry.intercepted}))
            )
            yield (
                f"{what} cannot be created or changed now: {entry.name} has failurePolicy Fail, "
                f"and {reason}"
            )


def _readable(installation: Installation) -> bool:
    try:
        installation.ours()
    except Unreadable:
        return False
    return True


def _unanswered(installation: Installation, entry: InspectedEntry) -> str:
    """Return why no call of this entry succeeds; empty if calls may succeed."""
    service = entry.service
    if service is None:
        error = installation.connect(entry.url, entry.bundle.decode(errors="replace"))
        return f"the webhook does not answer: {error}" if error else ""
    if not entry.bundle:
        return "its caBundle is empty"
    try:
        found = installation.get(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        if found is None:
            return f"Service {service} does not exist"
        return "" if installation.ready(service) else f"Service {service} has no ready endpoint"
    except Unreadable:
        return ""
