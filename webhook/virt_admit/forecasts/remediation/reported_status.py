"""What controllers report: how many Machines a health check counts as unhealthy, that it refuses,
or that an owner does.

Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go#reconcile
#patchUnhealthyTargets;
:controlplane/kubeadm/reconcilers/kubeadmcontrolplane/remediation.go#reconcileUnhealthyMachines;
:core/reconcilers/machineset/machineset_controller.go#reconcileUnhealthyMachines; for the count
#isAllowedRemediation;
openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go;
medik8s/node-healthcheck-operator:api/v1alpha1/nodehealthcheck_types.go#NodeHealthCheckStatus.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.int_or_percent import LimitKind
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import cut_middle
from virt_admit.model.remediation import machine_drain, machine_owners, machines
from virt_admit.model.remediation.health_checks import HealthCheck

READS: Final[Reads] = union(
    clock.READS,
    machines.OWNER_READS,
    {NODE: ("metadata.labels",), CAPI_MACHINE: ("status.conditions", "status.v1beta2.conditions")},
)
"""The fields of other objects than the check."""

_ALLOWED: Final = "RemediationAllowed"
_LONGEST: Final = 200
_LEFT: Final = "OwnerRemediated"
"""The condition with which a health check hands a Machine over to its owner.
The owner writes why it waits.
"""
_PROMPT: Final = timedelta(minutes=10)
"""An owner that can remediate a Machine deletes it in less than this."""
_DELETES: Final = ("RemediationInProgress", "MachineDeleting")
"""The reasons of both versions while the Machine is being deleted."""


def counted(check: HealthCheck, selection: Selection) -> int | None:
    """Return how many Machines the status counts as unhealthy, also those that soon will be.

    None: it does not say, or it is of an earlier spec, or of other Machines.
    """
    status, written = check.obj["status"], check.obj.metadata["generation"].integer
    expected, healthy = status["expectedMachines"].integer, status["currentHealthy"].integer
    is_old = written is not None and status["observedGeneration"].integer not in (None, written)
    if (
        check.kind is kinds.NHC
        or is_old
        or selection.unseen
        or expected != len(selection)
        or healthy is None
    ):
        return None
    return max(expected - healthy, 0)


def refusal(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield that a check says of itself that it remediates nothing, and for how long."""
    found = machine_drain.condition(check.obj, _ALLOWED)
    if found["status"].text == "False" and counted(check, selection):
        lasts = clock.lasting(found["lastTransitionTime"].text, cluster)
        words = found["message"].words or found["reason"].words
        yield f"its condition {_ALLOWED} is False{lasts}" + (
            f": {cut_middle(words, _LONGEST)}" if words else ""
        )


class Exceeded(NamedTuple):
    """A health check that remediates nothing now, by its own status."""

    unhealthy: int
    total: int
    limit: str
    """``: maxUnhealthy 40% of 4 rounds down to 1``; empty: that cannot be determined."""
    surplus: int
    """How many have to be repaired before the check acts on the others; 0: not known."""


def exceeded(check: HealthCheck, selection: Selection, cluster: Cluster) -> Exceeded | None:
    """Return how many objects are unhealthy, if the status of a check says that these are too many;
    None: it does not.

    A NodeHealthCheck says so in an event alone, so that its own counts are compared with its limit.
    """
    limit, total = remediation_steps.budget(check, selection), len(selection)
    if limit.never:  # its form is wrong, whatever the status says
        return None
    if check.kind is kinds.NHC:
        status = check.obj["status"]
        healthy = (
            status["healthyNodes"].integer if status["observedNodes"].integer == total else None
        )
        unhealthy = total - healthy if healthy is not None else 0
        refused = limit.most is not None and unhealthy > limit.most
    else:
        unhealthy = counted(check, selection) or 0
        refused = any(refusal(check, selection, cluster))
    if not refused:
        return None
    if limit.most is None:
        return Exceeded(unhealthy, total, "", 0)
    words = f": {limit.limit}{_rounded(check, total, limit.most)}"
    surplus = unhealthy - limit.most if limit.most and limit.least <= 1 else 0
    return Exceeded(unhealthy, total, words, max(surplus, 0))


def _rounded(check: HealthCheck, total: int, most: int) -> str:
    """Return how many a limit allows, and how a share of the objects becomes that number."""
    limit = None if check.range.present else check.known_limit()
    if limit is None or not limit.percent or limit.number * total % 100 == 0:
        return f" allows {most}"
    if check.limit_of is LimitKind.NODE_MIN_HEALTHY:
        return f" of {total} rounds up to {total - most}, which allows {most}"
    way = "up" if check.limit_of is LimitKind.NODE_MAX_UNHEALTHY else "down"
    return f" of {total} rounds {way} to {most}"


class OwnerRefusal(NamedTuple):
    """A Machine that its owner does not remediate, although a health check handed it over."""

    machine: Object
    owner: str
    lasts: str
    """``for 4 h 39: REASON``, the reason in its own words."""
    says: str
    """The message of the owner about it; empty: none."""


def refusals(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[OwnerRefusal]:
    """Yield the Machines of a Cluster API check that wait for their owner for too long."""
    if check.kind is not kinds.CAPI_MHC or not machine_owners.decide(check):
        return
    for machine in selection.objects:
        left = machine_drain.condition(machine, _LEFT)
        age = clock.since(left["lastTransitionTime"].text, cluster)
        waits = (
            left["status"].text == "False"
            and left["reason"].text not in _DELETES
            and not machine.deleted
        )
        if waits and age is not None and age >= _PROMPT:
            words = left["message"].words or left["reason"].words
            said = f"for {duration(age)}" + (f": {cut_middle(words, _LONGEST)}" if words else "")
            owner = machine_owners.title(machine) or "its owner"
            yield OwnerRefusal(machine, owner, said, left["message"].words)
