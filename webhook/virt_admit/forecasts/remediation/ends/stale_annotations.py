"""Control planes that remediate no Machine, because of a remediation that has long ended.

KubeadmControlPlane annotates itself with the Machine that it deletes because it is unhealthy, and
takes that away when it has created another Machine. If its controller ends between the two, the
annotation stays. Before 1.8 each later remediation is skipped because of it, without a word in the
condition of the Machine that waits. Since then a Machine that is younger than the annotation
refutes it. Without one all releases skip. Sources:
kubernetes-sigs/cluster-api#8188, #10559;
:controlplane/kubeadm/internal/controllers/remediation.go#reconcileUnhealthyMachines (v1.4.0,
v1.7.9, v1.8.0), helpers.go#createMachine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.remediation import capi_releases, control_plane_deadlocks
from virt_admit.forecasts.remediation.control_plane_deadlocks import IN_PROGRESS
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached, gather
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, KUBEADM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.messages import names
from virt_admit.model.remediation import health_checks, machine_drain, machine_owners

READS: Final[Reads] = union(
    control_plane_deadlocks.READS, capi_releases.READS, {KUBEADM: (), CAPI_MACHINE: ()}
)
_REFUTES: Final = Version(1, 8)
"""From this release on a younger Machine refutes the annotation."""
_SETTLED: Final = timedelta(minutes=20)
"""A replacement is created within a minute after the deletion, and the annotation goes with it."""
_REPLACES: Final = "controlplane.cluster.x-k8s.io/remediation-for"
_LEFT: Final = "OwnerRemediated"
_DELETES: Final = ("RemediationInProgress", "MachineDeleting")


@dataclass(frozen=True, slots=True)
class StaleAnnotation:
    """A control plane that skips remediations because of one that has ended."""

    owner: Object
    reason: str
    remedy: str
    brief: str
    """Why, in as few words as a finding about a health check has."""
    certain: bool
    """Whether its release certainly does not look whether that has ended."""


def of_machine(machine: Object, cluster: Cluster) -> StaleAnnotation | None:
    """Return the stale annotation of the control plane of a Machine; None: it has none."""
    owner = machine.controller
    if owner is None or owner["kind"].text != machine_owners.KUBEADM:
        return None
    return stale(cluster).get(f"{machine.namespace}/{owner['name'].text}")


@cached
def stale(cluster: Cluster) -> Mapping[str, StaleAnnotation]:
    """Return the control planes that skip remediations, by their ``namespace/name``."""
    found = (_stale(owner, cluster) for owner in cluster.known(KUBEADM))
    return {each.owner.full_name: each for each in found if each is not None}


def _stale(owner: Object, cluster: Cluster) -> StaleAnnotation | None:
    gone, begun = control_plane_deadlocks.in_progress(owner)
    age = clock.since(begun, cluster)
    if not gone or begun is None or age is None or age < _SETTLED:
        return None
    if owner.deleted or owner.annotation(health_checks.PAUSED).present:
        return None
    stuck = control_plane_deadlocks.deadlocks(cluster).values()
    if any(each.owner.full_name == owner.full_name for each in stuck):
        return None  # that is told there
    every, unseen = gather(cluster.list(CAPI_MACHINE, owner.namespace))
    own = [each for each in every if control_plane_deadlocks.is_of(each, owner)]
    if unseen or any(each.name == gone and each.deleted for each in own):
        return None
    runs = capi_releases.release(cluster, capi_releases.KUBEADM)
    refuted = _refuted(begun, own)
    if refuted and runs is not None and runs >= _REFUTES:
        return None  # it takes the annotation away itself
    if refuted and not any(_is_settled(each, cluster) for each in refuted):
        return None
    ended = _ended(gone, own, refuted, owner)
    if not ended:
        return None
    title = f"{machine_owners.KUBEADM} {owner.full_name}"
    release = f"Cluster API {runs}" if runs is not None else "Cluster API before 1.8"
    brief = (
        f"its annotation {IN_PROGRESS} of {begun} names Machine {gone}, which {ended}, and "
        f"{release} skips every remediation while it is there"
    )
    return StaleAnnotation(
        owner,
        f"{title} remediates none of its Machines{_waiting(own, cluster)}: {brief}",
        typed(
            f"take the annotation off, and {owner.name} remediates again, as far as etcd keeps its "
            "quorum",
            about("annotate", owner, KUBEADM, f"{IN_PROGRESS}-"),
            "Cluster API 1.8 takes such an annotation off itself" if refuted else "",
        ),
        brief,
        not refuted or runs is not None,
    )


def _refuted(begun: str, own: Sequence[Object]) -> Sequence[Object]:
    """Return the Machines that were created after the remediation began."""
    since = clock.instant(begun)
    made = ((each, clock.instant(each.created)) for each in own)
    return [each for each, at in made if at is not None and since is not None and at > since]


def _is_settled(machine: Object, cluster: Cluster) -> bool:
    age = clock.since(machine.created, cluster)
    return age is not None and age >= _SETTLED


def _ended(gone: str, own: Sequence[Object], younger: Sequence[Object], owner: Object) -> str:
    """Return how the remediation of a Machine has ended, as a clause; empty: it may go on."""
    if any(each.name == gone for each in own):
        return "is there and is not being deleted"
    if younger:
        known = [each.name for each in younger if gone in each.annotations.get(_REPLACES, "")]
        if known:
            return f"is gone and was replaced by {names(known)}"
        return f"is gone, although later ones were created ({names(each.name for each in younger)})"
    wanted = owner.at("spec", "replicas").integer
    staying = [each for each in own if not each.deleted]
    is_full = wanted is not None and len(staying) >= wanted
    return f"is gone, and all {wanted} replicas exist without it" if is_full else ""


def _waiting(own: Sequence[Object], cluster: Cluster) -> str:
    """Return which Machines wait for their remediation, with the condition that says so."""
    said = [f"{each.name} {words}" for each in own if (words := _left(each, cluster))]
    return f" ({'; '.join(said[:3])})" if said else ""


def _left(machine: Object, cluster: Cluster) -> str:
    left = machine_drain.condition(machine, _LEFT)
    if left["status"].text != "False" or left["reason"].text in _DELETES or machine.deleted:
        return ""
    age = clock.since(left["lastTransitionTime"].text, cluster)
    lasts = f" for {clock.duration(age)}" if age is not None else ""
    return f"has {_LEFT} False{lasts}"
