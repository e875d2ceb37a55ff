"""``doctor --probe``: one dry-run create through the API server,
which only a webhook that is reached answers.

Endpoints that are ready, a certificate and a bundle that fit do not prove that API servers reach
the webhook: a firewall between control plane and pods is invisible from outside. The probe stores
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from virt_admit.engine import probe as engine_probe
from virt_admit.install.inspect import Installation, Unreadable
from virt_admit.install.observations import CheckResult, Outcome, Status
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.messages import cut
from virt_admit.model.sanitize import line

_LONGEST: Final = 300
"""Characters of a message of the API server."""


class DryRunAnswer(NamedTuple):
    """The answer to a dry-run create."""

    status: int
    """The HTTP status; 0: no answer arrived."""
    message: str
    """The error; empty if the object was admitted."""
    warnings: tuple[str, ...] = ()


DryRunCreate = Callable[[str, Mapping[str, Any]], DryRunAnswer]
"""Sends an object to a path with ``dryRun=All``. It never raises."""


class Probe(NamedTuple):
    """One probe: where, with which nonce, and how it is sent."""

    namespace: str
    nonce: str
    send: DryRunCreate

    def __call__(self, installation: Installation) -> CheckResult:
        """Send the probe and yield whether our warning came back."""
        path = f"/apis/{VM.group}/{VM.versions[0]}/namespaces/{self.namespace}/{VM.plural}"
        answer = self.send(path, engine_probe.probe_object(self.namespace, self.nonce))
        if any(engine_probe.probe_warning(self.nonce) in warning for warning in answer.warnings):
            yield Status.OK, f"the webhook answered a dry-run create in namespace {self.namespace}"
        else:
            yield self._unanswered(answer, installation)

    def _unanswered(self, answer: DryRunAnswer, installation: Installation) -> Outcome:
        sent = f"a dry-run create of a VirtualMachine in namespace {self.namespace}"
        message = cut(line(answer.message), _LONGEST)
        if self._excluded(installation):
            text = (
                f"the webhook configurations exclude namespace {self.namespace}, so the webhook "
                f"did not see {sent}"
            )
            return Status.WRONG, text, "probe another namespace: --probe-namespace NAME"
        if answer.status == 0:
            text = f"the API server did not answer {sent}: {message}"
            return Status.WRONG, text, "run the command again"
        if answer.status == HTTPStatus.FORBIDDEN:
            text = f"this account may not send {sent}: {message}"
            return Status.WRONG, text, _GRANT.format(namespace=self.namespace)
        if answer.status == HTTPStatus.NOT_FOUND:
            missing = f"no VirtualMachine, or no namespace {self.namespace}"
            text = f"the API server knows {missing}: {message}"
            remedy = "install KubeVirt, or probe another namespace: --probe-namespace NAME"
            return Status.WRONG, text, remedy
        done = f"rejected: {message}" if message else "admitted without a review"
        return Status.WRONG, f"no answer of the webhook to {sent}, which was {done}", _REACH

    def _excluded(self, installation: Installation) -> bool:
        """Return whether our entries for virtual machines leave this namespace out."""
        try:
            found = installation.get(f"/api/v1/namespaces/{self.namespace}")
            entries = [
                entry for entry in installation.ours() if entry.matches_kind(VM.group, VM.plural)
            ]
        except Unreadable:
            return False
        own = (found or {"metadata": {}})["metadata"].get("labels") or {}
        labels = {"kubernetes.io/metadata.name": self.namespace, **own}
        return bool(entries) and not any(entry.selects(labels) for entry in entries)


_GRANT: Final = (
    "use an account that may create virtualmachines.kubevirt.io there, or name a namespace where "
    "it may: --probe-namespace NAME. kubectl auth can-i create virtualmachines.kubevirt.io -n "
    "{namespace} tells"
)
_REACH: Final = (
    "keep failurePolicy Ignore. Fix what is wrong above; if nothing is, let the control plane "
    "reach the webhook's pods (docs/install.md, firewalls), and read the API server's log: failed "
    "calling webhook"
)
