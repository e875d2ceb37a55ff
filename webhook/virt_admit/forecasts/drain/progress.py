"""How far a drain is: since when the node is drained and by what, what is left,
and when something last moved.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, NODE, POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.lookups import fields
from virt_admit.model.node_updates import updaters
from virt_admit.model.node_updates.node_phases import Phase

READS: Final = union(
    updaters.READS,
    machine_nodes.READS,
    {
        NODE: ("spec.taints", "spec.unschedulable", "metadata.annotations"),
        VMIM: ("status.phaseTransitionTimestamps", "status.migrationState"),
    },
)
_CORDONED: Final = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node. The node controller writes its ``timeAdded``
(controller_utils.go#SwapNodeControllerTaint).
"""

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
"""How far a VM is in each state. A VM that falls back and gets as far again has not made
progress.
"""


class DrainCause(enum.StrEnum):
    """What drains a node: a kind, or what was done to the node."""

    CORDON = "cordon"
    TAINT = "taint"
    NODE_MAINTENANCE = "NodeMaintenance"
    MACHINE_CONFIG_POOL = "MachineConfigPool"
    MACHINE_DEPLOYMENT = "MachineDeployment"
    MACHINE = "Machine"
    UPGRADE = "Upgrade"
    """An upgrade of Harvester."""
    UPGRADE_PLAN = "UpgradePlan"
    """The same since Harvester 1.8."""
    HARVESTER = "Harvester"
    """Its maintenance mode."""


_BY_KIND: Final = {str(cause): cause for cause in DrainCause}


@dataclass(frozen=True, slots=True)
class DrainStart:
    """That a node is being drained."""

    cause: DrainCause
    since: datetime | None
    """None: not known."""
    name: str = ""
    """The name of the object that drains it; empty: none is known."""

    @property
    def by(self) -> str:
        """The cause with the name of its object."""
        return f"{self.cause} {self.name}" if self.name else str(self.cause)


def start(node: Object, cluster: Cluster) -> DrainStart | None:
    """Return since when a node is being drained, and by what; None: it is not being drained."""
    taints = {taint["key"].text or "": taint for taint in node.at("spec", "taints").items()}
    drain_taint = taints.get(migration_limits.drain_taint(cluster))
    marks = [
        clock.instant(taint["timeAdded"].text)
        for taint in (taints.get(_CORDONED), drain_taint)
        if taint
    ]
    since = min(filter(None, marks), default=None)
    drain = _of_updater(node, cluster) or entry(cluster, _of_machines, node.name)
    if drain is not None:
        return DrainStart(drain.cause, drain.since or since, drain.name)
    if node.at("spec", "unschedulable").boolean is True:
        return DrainStart(DrainCause.CORDON, since)
    return DrainStart(DrainCause.TAINT, since) if drain_taint else None


def _of_updater(node: Object, cluster: Cluster) -> DrainStart | None:
    """Return the drain that a roll-out or a maintenance of the node asks for."""
    update = updaters.of_nodes(cluster).get(node.name)
    if update is None or update.phase is not Phase.DRAINING:
        return None
    if update.kind == NODE.kind:  # its annotations
        return DrainStart(DrainCause.HARVESTER, update.since)
    return DrainStart(_BY_KIND.get(update.kind, DrainCause.CORDON), update.since, update.name)


def _of_machines(cluster: Cluster) -> Mapping[str, DrainStart]:
    """Return the drains of nodes whose Machine is being deleted, by node."""
    deleted = [
        machine
        for kind in (CAPI_MACHINE, MACHINE)
        for machine in cluster.known(kind)
        if machine.deleted
    ]
    return {
        machine_nodes.emptied_node(machine, cluster): DrainStart(
            DrainCause.MACHINE,
            clock.instant(machine.metadata["deletionTimestamp"].text),
            machine.name,
        )
        for machine in deleted
    }


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
    evicted = [
        pod
        for pod in entry(cluster, evicted_pods.by_node, node) or ()
        if evicted_pods.is_evicted(pod)
    ]
    own = sorted(pod.full_name for pod in evicted if not evicted_pods.is_of_vm(pod))
    of_vms = sorted(pod.full_name for pod in evicted if evicted_pods.is_of_vm(pod))
    return FollowRemaining(tuple(own), tuple(of_vms), cluster.cached(_is_complete))


def _is_complete(cluster: Cluster) -> bool:
    """Return whether all pods and VMIs are known.

    It is asked for each node, and many clusters decode every object.
    """
    return not any(unlisted(cluster, kind) for kind in (POD, VMI))


def moved(node: str, cluster: Cluster) -> datetime | None:
    """Return when a migration away from a node last changed its phase; None: none did."""
    return entry(cluster, _moved, node)


def _moved(cluster: Cluster) -> dict[str, datetime]:
    newest: dict[str, datetime] = {}
    for migration in cluster.known(VMIM):
        source = _source(migration, cluster)
        for time in _transitions(migration):
            newest[source] = max(time, newest.get(source, time))
    return newest


def _source(migration: Object, cluster: Cluster) -> str:
    recorded = migration.at("status", "migrationState", "sourceNode").text
    if recorded or migration.ended:
        return recorded or ""
    vmi = fields(cluster, VMI, migration.namespace, migration.at("spec", "vmiName").text)
    return vmi.at("status", "nodeName").text or ""


def _transitions(migration: Object) -> Iterator[datetime]:
    for transition in migration.at("status", "phaseTransitionTimestamps").items():
        time = clock.instant(transition["phaseTransitionTimestamp"].text)
        if time is not None:
            yield time
