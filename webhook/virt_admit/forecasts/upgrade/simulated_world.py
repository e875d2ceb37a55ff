"""What a run of the simulation starts from: the cluster as it is now,
with the moves and updates that are under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.states.vm_states_kinds import State, VmState
from virt_admit.forecasts.drain.targets import rebuilt_volumes
from virt_admit.forecasts.drain.vm_outcomes import SHUT_DOWN, Forecast, VmOutcome
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import no_target, quotas, virt_handlers, volume_attachments
from virt_admit.forecasts.placement.candidates import preemption, scheduler
from virt_admit.forecasts.placement.components import node_drivers
from virt_admit.forecasts.upgrade import drain_waits, durations, upgrade_progress
from virt_admit.forecasts.upgrade.durations import Estimate, Range
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.rollouts import Pool
from virt_admit.forecasts.upgrade.simulation import BACKOFF, UNSCHEDULABLE, UnderWay, Vm, World
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather, unlisted
from virt_admit.model.kubernetes.kinds import PVC, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_failures
from virt_admit.model.kubevirt.launcher.launcher_pod import CREATED_BY
from virt_admit.model.kubevirt.settings.migration_limits import PER_CLUSTER, PER_NODE
from virt_admit.model.kubevirt.settings.parallel_migrations import MigrationLimits
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import updaters
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, Phase, PoolUpdate, by_node
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.node_labels import is_transient
from virt_admit.model.scheduler.snapshot import Node


@dataclass(frozen=True, slots=True)
class Start:
    """What all runs have in common."""

    plan: Plan
    pools: tuple[Pool, ...]
    limits: MigrationLimits
    reboot: int
    """Seconds for the update and reboot of one node."""
    begun: Sequence[PoolUpdate] = ()
    """How far the roll-out is that is under way."""
    continued: bool = True
    """Whether migrations that are under way go on; otherwise they are ignored."""


def estimated(plan: Plan, cluster: Cluster) -> dict[str, Estimate]:
    """Return how long one move of each VM takes, by its full name."""
    return {
        row.vmi.full_name: _estimate(row, cluster) for node in plan.nodes for row in node.forecasts
    }


def _estimate(row: Forecast, cluster: Cluster) -> Estimate:
    if row.outcome in SHUT_DOWN:
        return durations.restart(row.vmi)
    return durations.migration(row.vmi, row.target.pod.requests, cluster)


def world(cluster: Cluster, start: Start, estimates: Mapping[str, Estimate], bound: str) -> World:
    """Return what a run starts from: with the ``low`` durations and favourable chance,
    or the opposite.
    """
    begun = {
        name: upgrade_progress.until_back(update, start.reboot, bound, cluster)
        for name, update in by_node(start.begun)
    }
    deadlines = _deadlines(begun, cluster)
    vms = tuple(
        Vm(
            row.vmi.full_name,
            node.name,
            row.target.pod,
            migrates=row.outcome not in SHUT_DOWN,
            stays_off=row.outcome in (VmOutcome.STOPS, VmOutcome.AWAITS_NODE),
            blocked=_blocked(row, cluster, start.limits),
            seconds=getattr(estimates[row.vmi.full_name].seconds, bound),
            under_way=_under_way(row, estimates[row.vmi.full_name].seconds, bound, cluster)
            if start.continued
            else None,
            ready=rebuilt_in(row.vmi, bound, cluster),
            attached=bool(deadlines) and _is_attached(row, node.name, cluster),
        )
        for node in sorted(start.plan.nodes, key=lambda node: node.name)
        for row in sorted(node.forecasts, key=lambda row: row.vmi.full_name)
    )
    stuck = {
        node.name: reason for node in start.plan.nodes for reason in list(other_pods(node))[:1]
    }
    back = returning(start.pools, cluster)
    filters = with_nodes_back(scheduler(cluster), back)
    filters = _without_left(filters, start.plan)
    filters = without_virt_handler(filters, cluster.cached(virt_handlers.broken).keys() - back)
    filters = node_drivers.served(filters, cluster, back)
    away = back if start.continued else frozenset()
    return World(
        filters,
        start.pools,
        vms,
        start.limits,
        start.reboot,
        stuck,
        begun,
        bound == "low",
        away,
        deadlines=deadlines,
    )


def rebuilt_in(vmi: Object, bound: str, cluster: Cluster) -> int:
    """Return the seconds until the volumes of a VM are rebuilt, as fast as until now and as drain
    says it, or at half that speed.
    """
    left = rebuilt_volumes.remaining(vmi, cluster).total_seconds()
    return int(left if bound == "low" else left * 2)


def _deadlines(begun: Collection[str], cluster: Cluster) -> Mapping[str, tuple[int, int]]:
    """Return the seconds after which the drains of nodes under way end in any case, and those for
    which volumes that are attached keep such a node then.
    """
    ends = {name: end for name, end in drain_waits.deadlines(cluster).items() if name in begun}
    current = clock.now(cluster) if ends else None  # who asks for it is asked again all the time
    if current is None:
        return {}
    return {
        name: (max(int((end - current).total_seconds()), 0), volumes)
        for name, (end, volumes) in ends.items()
    }


def _is_attached(row: Forecast, node: str, cluster: Cluster) -> bool:
    """Return whether a volume of a VM is attached to its node, or may be."""
    if unlisted(cluster, VOLUME_ATTACHMENT):
        return True
    known = {*volume_attachments.attached(node, cluster)}
    claims = (find(cluster, PVC, row.vmi.namespace, name) for name in row.target.pod.claims)
    return bool(known) and any(
        claim is None or claim.at("spec", "volumeName").text in known for claim in claims
    )


def _without_left(filters: FilterPipeline, plan: Plan) -> FilterPipeline:
    """Return the filters without the pods of VMs that have left a node: they end in a moment,
    so their room is free.
    """
    return filters.without_pods(
        pod
        for node in plan.nodes
        for row in node.visitors
        if row.state.state is State.ARRIVED and not row.state.late
        for pod in filters.state.pods.get(node.name, ())
        if pod.namespace == row.vmi.namespace
        and pod.labels.get(CREATED_BY) == row.vmi.metadata["uid"].text
    )


def other_pods(node: NodePlan) -> Iterator[str]:
    """Yield why pods that are not of VMs keep a node from becoming empty,
    however often its drain is repeated.
    """
    for blocker in node.pods.lasting:
        yield f"{blocker.subject}: {blocker.reason}"


_COPYING: Final = (State.RUNNING, State.PAUSED, State.POST_COPY)
_BEFORE: Final = (State.PREPARING, State.TARGET_PENDING, State.TARGET_NOT_READY)


def _under_way(row: Forecast, usual: Range, bound: str, cluster: Cluster) -> UnderWay | None:
    """Return the migration of a VM that has begun already; None: none has."""
    state = row.state
    if row.outcome in SHUT_DOWN:
        return None
    if state.state is State.UNSCHEDULABLE:
        return UnderWay(_left(state, UNSCHEDULABLE, cluster))
    if state.state is State.BACKOFF:
        return UnderWay(_left(state, BACKOFF, cluster), holds_place=False)
    if not state.target or state.state not in (*_COPYING, *_BEFORE):
        return None
    if state.state in _BEFORE:
        return UnderWay(getattr(usual, bound), state.target)
    since = clock.elapsed(state.since, cluster)
    elapsed = int(since.total_seconds()) if since is not None else 0
    if bound == "low":
        return UnderWay(max(usual.low - elapsed, 0), state.target)
    return UnderWay(_left(state, max(usual.high - elapsed, 0), cluster), state.target)


def _left(state: VmState, default: int, cluster: Cluster) -> int:
    """Return the seconds until the next step of a state."""
    current = clock.now(cluster)
    if state.until is None or current is None:
        return default
    return max(int((state.until - current).total_seconds()), 0)


def _blocked(row: Forecast, cluster: Cluster, found: MigrationLimits) -> str:
    """Return why a VM never leaves its node, whatever becomes of the other nodes meanwhile.

    That no node takes it just now is left to the simulation: room appears while nodes come back. A
    disk, a selector or a processor that no other node has stays a reason.
    """
    if row.outcome in SHUT_DOWN:
        return ""
    if row.outcome is VmOutcome.BLOCKS:
        for_good = row.placement.has_candidate or bool(gather(quotas.refusals(row.vmi, cluster))[0])
        without_driver = [
            name
            for name, why in row.placement.refusals.items()
            if why.startswith(node_drivers.LACKS)
        ]
        failed = {*migration_failures.impossible_targets(row.vmi, cluster), *without_driver}
        if (
            not _migrates(row.vmi, cluster)
            or for_good
            or no_target.is_lasting(row.target, row.vmi, cluster, refused=failed)
        ):
            return row.reason
    if found.cluster < 1 or found.node < 1:
        return (
            f"{PER_CLUSTER} is {found.cluster} and {PER_NODE} is {found.node}, so no migration "
            "starts"
        )
    return ""


def _migrates(vmi: Object, cluster: Cluster) -> bool:
    """Return whether the eviction of a VMI is known to migrate it: one that blocks for another
    reason is judged without the eviction strategy of a cluster that is not known.
    """
    try:
        return vmi_evictions.reaction(vmi, cluster).effect is Effect.MIGRATES
    except Unseen:
        return False


# --- nodes that are back, or of no use ------------------------------------------------------------


def returning(pools: Iterable[Pool], cluster: Cluster) -> frozenset[str]:
    """Return the nodes of these pools whose update is under way and has not failed:
    they take VMs when it ends.
    """
    found = updaters.of_nodes(cluster)
    left = {name for pool in pools for name in pool.to_do if name in found}
    return frozenset(name for name in left if found[name].phase in IN_FLIGHT - {Phase.FAILING})


def with_nodes_back(scheduler: FilterPipeline, nodes: Collection[str]) -> FilterPipeline:
    """Return the filters over the cluster as it is when these nodes are back."""
    return scheduler.changed(nodes, _back) if nodes else scheduler


def without_virt_handler(scheduler: FilterPipeline, nodes: Collection[str]) -> FilterPipeline:
    """Return the filters over the cluster in which these nodes take no VM:
    their virt-handler does not work.
    """
    return scheduler.changed(nodes, _unserved) if nodes else scheduler


def _unserved(node: Node) -> Node:
    served = {SCHEDULABLE: "false"} if SCHEDULABLE in node.labels else {}
    return replace(node, labels={**node.labels, **served})


def _back(node: Node) -> Node:
    """Return a node without its cordon, and with the label that virt-controller changes while it
    does not report.
    """
    served = {SCHEDULABLE: "true"} if SCHEDULABLE in node.labels else {}
    taints = tuple(taint for taint in node.taints if not is_transient(taint))
    return replace(
        node, cordoned=False, ready=True, taints=taints, labels={**node.labels, **served}
    )


def depends_on_preemption(
    plan: Plan, worlds: Sequence[World], ends: Sequence[Outcome], cluster: Cluster
) -> bool:
    """Return whether preemption, which is not simulated,
    may let all VMs go that found no room in a run.

    It cannot help a node that other pods or VMs block in any case, nor a VM that it would not help
    now.
    """
    for_good = {vm.name for world in worlds for vm in world.vms if vm.blocked}
    for_good |= {row.vmi.full_name for row in plan.having(VmOutcome.BLOCKS)}
    stuck = {node: reason.partition(": ")[0] for end in ends for node, reason in end.stops.items()}
    if any(node in worlds[0].stuck or name in for_good for node, name in stuck.items()):
        return False
    return preemption(cluster).may_help(vm.pod for vm in worlds[0].vms)
