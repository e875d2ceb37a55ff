"""The probe of ``virt-admit doctor --probe``:
a VirtualMachine that only proves that an API server calls this webhook.

The webhook answers its create with a warning that repeats a nonce. No other program sends that
warning, so it proves that the API server reached a webhook of ours, trusted it, and took its
answer.
"""

from __future__ import annotations

from typing import Any, Final

from virt_admit.engine.admission_review import Request
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.messages import cut
from virt_admit.model.sanitize import line
from virt_admit.rule import Operation
from virt_admit.settings import DOMAIN

NAME: Final = "virt-admit-probe"
ANNOTATION: Final = f"{DOMAIN}/probe"
"""The annotation with the nonce."""
_LONGEST: Final = 64
"""Characters of a nonce. Every client may send a probe, and warnings share 4,096 characters."""


def probe_object(namespace: str, nonce: str) -> dict[str, Any]:
    """Return a valid VM that is stopped, needs nothing, and has no finding of a rule."""
    guest = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
    return {
        "apiVersion": f"{VM.group}/{VM.versions[0]}",
        "kind": VM.kind,
        "metadata": {"name": NAME, "namespace": namespace, "annotations": {ANNOTATION: nonce}},
        "spec": {"runStrategy": "Halted", "template": {"spec": guest}},
    }


def probe_warning(nonce: str) -> str:
    """Return the warning that proves that the webhook answered."""
    return f"[virt-admit/probe] {nonce}"


def answer(request: Request) -> str:
    """Return the warning about a probe; empty for any other request."""
    if (
        request.name != NAME
        or request.kind is not VM
        or request.operation != Operation.CREATE
        or request.obj is None
    ):
        return ""
    nonce = request.obj.annotation(ANNOTATION).text
    return probe_warning(cut(line(nonce), _LONGEST)) if nonce else ""
