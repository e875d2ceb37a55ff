"""How far a drain is: since when the node is drained and by what, what is left, and when something last moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.states import vm_states
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, NODE, POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.remediation import maintenance

READS: Final[Reads] = {
    NODE: ("spec.taints", "spec.unschedulable", "metadata.annotations"),
    NM: (),
    NM_KUBEVIRT: (),
    VMIM: ("status.phaseTransitionTimestamps", "status.migrationState"),
}
_CORDONED: Final = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node. The node controller writes its ``timeAdded`` (controller_utils.go#SwapNodeControllerTaint)."""
_DESIRED_DRAIN: Final = "machineconfiguration.openshift.io/desiredDrain"
_APPLIED_DRAIN: Final = "machineconfiguration.openshift.io/lastAppliedDrain"

FURTHER: Final = {
    state: rank
    for rank, states in enumerate(
        (
            (State.MARKED, State.QUEUED, State.BACKOFF, State.UNSCHEDULABLE),
            (State.TARGET_PENDING,),
            (State.TARGET_NOT_READY,),
            (State.PREPARING,),
            (State.RUNNING,),
            (State.PAUSED,),
            (State.POST_COPY,),
            (State.NOT_CLOSED, State.STOPPING, State.ENDED, State.GONE),
            (State.ARRIVED,),
        ),
        1,
    )
    for state in states
}
"""How far a VM is in each state. A VM that falls back and gets as far again has not made progress."""


@dataclass(frozen=True, slots=True)
class DrainStart:
    """That a node is being drained."""

    by: str
    """Its cause: ``cordon``, ``taint``, or the kind and name of what drains it."""
    since: datetime | None
    """None: not known."""


def start(node: Object, cluster: Cluster) -> DrainStart | None:
    """Return since when a node is being drained, and by what; None: it is not being drained."""
    taints = {taint["key"].text: taint for taint in node.at("spec", "taints").items()}
    cordoned = node.at("spec", "unschedulable").boolean is True
    drain_taint = taints.get(vm_states.drain_taint(cluster))
    marks = [clock.instant(taint["timeAdded"].text) for taint in (taints.get(_CORDONED), drain_taint) if taint]
    since = min(filter(None, marks), default=None)
    for kind in maintenance.KINDS:
        for found in cluster.known(kind):
            if maintenance.node(found).text == node.name and not found.deleted:
                return DrainStart(f"{kind.kind} {found.name}", since)
    wanted = node.annotations.get(_DESIRED_DRAIN, "")
    if wanted.startswith("drain-") and wanted != node.annotations.get(_APPLIED_DRAIN):
        return DrainStart("the machine config operator", since)
    if not cordoned:
        return DrainStart("taint", since) if drain_taint else None
    return DrainStart("cordon", since)


@dataclass(frozen=True, slots=True)
class FollowRemaining:
    """What a drain still evicts."""

    pods: tuple[str, ...]
    """``namespace/name`` of the pods that are not of VMs, sorted."""
    old_pods: tuple[str, ...]
    """The pods of VMs, sorted."""
    complete: bool
    """Whether all pods and VMIs are known."""


def remaining(node: str, cluster: Cluster) -> FollowRemaining:
    """Return the pods of a node that a drain evicts."""
    evicted = [pod for pod in cluster.cached(pod_evictions.by_node).get(node, ()) if pod_evictions.is_evicted(pod)]
    own = sorted(pod.full_name for pod in evicted if not pod_evictions.is_of_vm(pod))
    of_vms = sorted(pod.full_name for pod in evicted if pod_evictions.is_of_vm(pod))
    complete = not any(gather(cluster.list(kind))[1] for kind in (POD, VMI))
    return FollowRemaining(tuple(own), tuple(of_vms), complete)


def moved(node: str, cluster: Cluster) -> datetime | None:
    """Return when a migration away from a node last changed its phase; None: none did."""
    return cluster.cached(_moved).get(node)


def _moved(cluster: Cluster) -> dict[str, datetime]:
    newest: dict[str, datetime] = {}
    for migration in cluster.known(VMIM):
        source = _source(migration, cluster)
        for time in _transitions(migration):
            newest[source] = max(time, newest.get(source, time))
    return newest


def _source(migration: Object, cluster: Cluster) -> str:
    recorded = migration.at("status", "migrationState", "sourceNode").text
    if recorded or migration.at("status", "phase").text in migrations.FINAL_PHASES:
        return recorded or ""
    try:
        vmi = cluster.get(VMI, migration.namespace, migration.at("spec", "vmiName").text or "")
    except Unseen:
        return ""
    return (vmi.at("status", "nodeName").text or "") if vmi is not None else ""


def _transitions(migration: Object) -> Iterator[datetime]:
    for transition in migration.at("status", "phaseTransitionTimestamps").items():
        time = clock.instant(transition["phaseTransitionTimestamp"].text)
        if time is not None:
            yield time
