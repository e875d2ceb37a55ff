"""Control planes that wait for themselves: one Machine is to be replaced,
and another one that has no node forbids it.

Before Cluster API 1.7 the remediation of a Machine began although another one had no node yet, and
before 1.13 no replacement was created while that was so. KubeadmControlPlane remediates the other
one only after the replacement. Sources: kubernetes-sigs/cluster-api#9398, #13352;
:controlplane/kubeadm/reconcilers/kubeadmcontrolplane/remediation.go #reconcileUnhealthyMachines,
preflight.go#preflightChecks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, events, json_codec
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, KUBEADM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import count
from virt_admit.model.remediation import machine_drain, machine_owners, machine_starts, machines

READS: Final[Reads] = union(machine_starts.READS, {KUBEADM: ()})

IN_PROGRESS: Final = "controlplane.cluster.x-k8s.io/remediation-in-progress"
"""The annotation with the Machine that was deleted and is not replaced yet, as JSON."""
_LEFT: Final = "OwnerRemediated"
_JUDGED: Final = "HealthCheckSucceeded"
_PROMPT: Final = timedelta(minutes=20)
"""A replacement is created within a minute after the deletion of the unhealthy Machine has
ended.
"""


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A control plane that does not go on by itself."""

    owner: Object
    machine: Object
    """It has no node, and is to be deleted by hand."""
    reason: str
    remedy: str


@cached
def deadlocks(cluster: Cluster) -> Mapping[str, Deadlock]:
    """Return the control planes that wait for themselves,
    by ``namespace/name`` of the Machine without a node.
    """
    found = (_deadlock(owner, cluster) for owner in cluster.known(KUBEADM))
    return {each.machine.full_name: each for each in found if each is not None}


def _deadlock(owner: Object, cluster: Cluster) -> Deadlock | None:
    deleted, begun = in_progress(owner)
    age = clock.since(begun, cluster)
    if not deleted or begun is None or age is None or age < _PROMPT:
        return None
    own = [each for each in cluster.known(CAPI_MACHINE, owner.namespace) if is_of(each, owner)]
    if any(each.deleted or each.name == deleted or not _is_older(each, begun) for each in own):
        return None  # it is still being deleted, or is replaced
    waiting = [each for each in own if not machines.node_name(each)]
    if len(waiting) != 1 or machine_drain.condition(waiting[0], _LEFT)["status"].text != "False":
        return None
    (machine,) = waiting
    said = events.last_warning(owner, "ControlPlaneUnhealthy", clock.instant(begun), cluster)
    why = machine_drain.condition(machine, _JUDGED)["reason"].text
    shown = "its event ControlPlaneUnhealthy says so" if machine.name in said else ""
    known = ", ".join(filter(None, (why, shown)))
    reason = (
        f"{machine_owners.KUBEADM} {owner.full_name} waits for itself: for {duration(age)} it has "
        f"created no Machine instead of {deleted}, as {machine.name} has no "
        f"node{f' ({known})' if known else ''}, and it does not remediate {machine.name} before "
        "that"
    )
    return Deadlock(
        owner, machine, reason, _remedy(machine, [each for each in own if each is not machine])
    )


def in_progress(owner: Object) -> tuple[str, str | None]:
    """Return the Machine whose replacement is missing, by the annotation, and since when."""
    data = json_codec.embedded(owner.annotations.get(IN_PROGRESS))
    found = data if isinstance(data, dict) else {}
    name, begun = found.get("machine"), found.get("timestamp")
    return (name, begun) if isinstance(name, str) and isinstance(begun, str) else ("", None)


def is_of(machine: Object, owner: Object) -> bool:
    """Return whether a Machine belongs to a control plane."""
    return machine_owners.title(machine) == f"{owner.kind} {owner.name}"


def _is_older(machine: Object, begun: str) -> bool:
    made, since = clock.instant(machine.created), clock.instant(begun)
    return made is not None and since is not None and made <= since


def _remedy(machine: Object, others: Sequence[Object]) -> str:
    healthy = [
        machine_drain.condition(each, "EtcdMemberHealthy")["status"].text == "True"
        for each in others
    ]
    safe = (
        f"while {count(len(others), 'other member')} of etcd {'is' if len(others) == 1 else 'are'} "
        "healthy"
    )
    when = safe if healthy and all(healthy) else "once all other members of etcd are healthy"
    words = (
        f"delete Machine {machine.name}, which has no node, {when}: its control plane then creates "
        "the missing Machines"
    )
    later = "Cluster API 1.13 does so by itself"
    return typed(f"{words} ({later})", about("delete", machine, CAPI_MACHINE))
