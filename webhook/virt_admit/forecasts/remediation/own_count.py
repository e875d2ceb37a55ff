"""What a MachineHealthCheck says of itself in its status: how many Machines it counts as unhealthy, and that it refuses.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go#reconcile
#isAllowedRemediation; openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.messages import cut
from virt_admit.model.remediation import machine_drain
from virt_admit.model.remediation.health_checks import HealthCheck

_ALLOWED: Final = "RemediationAllowed"
_LONGEST: Final = 200


def counted(check: HealthCheck, selection: Selection) -> int | None:
    """Return how many Machines the status counts as unhealthy, also those that soon will be.

    None: it does not say, or it is of an earlier spec, or of other Machines.
    """
    status, written = check.obj["status"], check.obj.metadata["generation"].integer
    expected, healthy = status["expectedMachines"].integer, status["currentHealthy"].integer
    is_old = written is not None and status["observedGeneration"].integer not in (None, written)
    if check.kind is kinds.NHC or is_old or selection.unseen or expected != len(selection) or healthy is None:
        return None
    return max(expected - healthy, 0)


def refusal(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield that a check says of itself that it remediates nothing, and for how long."""
    found = machine_drain.condition(check.obj, _ALLOWED)
    if found["status"].text == "False" and counted(check, selection):
        age = clock.since(found["lastTransitionTime"].text, cluster)
        lasts = f" for {duration(age)}" if age is not None else ""
        words = " ".join((found["message"].text or found["reason"].text or "").split())
        yield f"its condition {_ALLOWED} is False{lasts}" + (f": {cut(words, _LONGEST)}" if words else "")
