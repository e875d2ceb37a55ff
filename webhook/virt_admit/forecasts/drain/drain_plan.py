"""Whether nodes can be drained: their VMs, the room for them elsewhere, and the other pods."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

from virt_admit.forecasts.drain import (
    capacity,
    node_notes,
    pod_evictions,
    selection,
    typed_remedies,
    vm_downtime,
    vm_outcomes,
    workload_updates,
)
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.changes import readiness
from virt_admit.forecasts.drain.changes.readiness import Readiness
from virt_admit.forecasts.drain.control import control_path, held_operators, overruling
from virt_admit.forecasts.drain.control.control_path import Component
from virt_admit.forecasts.drain.pod_evictions import PodEvictions
from virt_admit.forecasts.drain.room import crowded_vms, unbound_claims
from virt_admit.forecasts.drain.starting.starting_guests import on_node
from virt_admit.forecasts.drain.states import vm_states_failures
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.targets import closed_targets
from virt_admit.forecasts.drain.targets.closed_targets import ClosedTarget
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.drain.workload_updates import Update, running, update
from virt_admit.forecasts.placement import preemption_effects
from virt_admit.forecasts.remediation import coverage, outside_checks
from virt_admit.model import node_bridges
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.in_order import InOrder, first_alone
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, each, entry, keep, unlisted
from virt_admit.model.kubernetes.kinds import (
    LIMIT_RANGE,
    NODE,
    PDB,
    POD,
    RESOURCE_QUOTA,
    VMI,
    VMIM,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import cluster_updates, updaters
from virt_admit.model.node_updates.node_phases import NodeUpdate
from virt_admit.model.node_updates.operators import left_maintenances
from virt_admit.model.remediation import etcd_guard
from virt_admit.model.scheduler.packing import Packing

READS: Final = union(
    unbound_claims.READS,
    pod_evictions.READS,
    node_notes.READS,
    left_maintenances.LEASE_READS,
    coverage.READS,
    outside_checks.READS,
    overruling.READS,
    vm_downtime.READS,
    cluster_updates.READS,
    updaters.READS,
    node_bridges.READS,
    held_operators.READS,
)
"""The fields that a plan reads."""

_HELD: Final = (
    cluster_updates.holding,
    node_notes.paused_pools,
    node_notes.not_reporting,
    held_operators.briefly,
)
_PORTION: Final = 64
"""Running VMs whose updates are forecast together,
so that a change of one costs no more in a larger cluster.
"""
WORST_FIRST: Final = {outcome: rank for rank, outcome in enumerate(VmOutcome)}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The effects of a drain of one node."""

    name: str
    state: tuple[str, ...]
    """The state of the node now, if it is not normal: ``cordoned``, ``not Ready``, ``not seen``."""
    forecasts: tuple[Forecast, ...]
    """One forecast for each VMI on the node, the worst first."""
    pods: PodEvictions
    packing: Packing
    """Whether all its VMs that migrate or restart elsewhere find room at the same time."""
    moving: Packing
    """Whether those that migrate do: a VM that is shut down leaves the node,
    with or without room elsewhere.
    """
    doubts: tuple[str, ...]
    """The data that could not be read, and on which it rests whether the drain ends."""
    unseen: tuple[str, ...]
    """All data that could not be read."""
    visitors: tuple[Forecast, ...] = ()
    """VMs of other nodes that arrive here, or have left while their old pod has not ended;
    other nodes count them.
    """
    notes: tuple[str, ...] = ()
    """What an administrator should know besides; it never changes the verdict."""
    waiting: tuple[str, ...] = ()
    """VMs that are shut down and find no place next to the others, each with the cause;
    ``notes`` has them too.
    """
    control: tuple[Component, ...] = ()
    """The components of KubeVirt without which no VM leaves, as far as they are known."""
    update: NodeUpdate | None = None
    """What updates the node now. None: nothing does, or nothing says so."""
    is_empty: bool = False
    """Whether it is known that a drain has nothing to evict."""
    is_guarded: bool = False
    """Whether it must not be drained, as ``notes`` say: its Machine is held as a member of etcd."""
    readiness: Readiness = Readiness.NOW

    def having(self, outcome: VmOutcome) -> tuple[Forecast, ...]:
        """Return the forecasts with this outcome."""
        return tuple(vm for vm in self.forecasts if vm.outcome is outcome)

    @property
    def undecided(self) -> tuple[Forecast, ...]:
        """Return the forecasts that cannot be determined,
        those of VMs that have left this node included.
        """
        left = (
            vm
            for vm in self.visitors
            if vm.outcome is VmOutcome.UNKNOWN and vm.state.state is State.ARRIVED
        )
        return (*self.having(VmOutcome.UNKNOWN), *left)

    def crowded(self, room: Packing) -> tuple[str, ...]:
        """Return the VMs that find no place at the same time.

        One that fits nowhere has a reason of its own.
        """
        if room.fits is not False:
            return ()
        nowhere = {row.vmi.full_name for row in self.forecasts if row.placement.certain == ()}
        return tuple(pod.full_name for pod in room.left if pod.full_name not in nowhere)

    @property
    def without_room(self) -> tuple[Forecast, ...]:
        """The VMs that could migrate alone, but not with the others."""
        crowded, rows = self.crowded(self.moving), self.having(VmOutcome.MIGRATES)
        return tuple(row for row in rows if row.vmi.full_name in crowded)

    @property
    def blockers(self) -> int:
        """The number of VMs and other things that keep the node from becoming empty."""
        return len(self.having(VmOutcome.BLOCKS)) + len(self.pods.blockers)

    @property
    def drainable(self) -> bool | None:
        """Whether the node can be drained now. None: it cannot be determined."""
        if self.having(VmOutcome.BLOCKS) or self.pods.blockers or self.moving.fits is False:
            return False
        stays = any(vm.outcome in (VmOutcome.BLOCKS, VmOutcome.UNKNOWN) for vm in self.visitors)
        return (
            None
            if self.doubts or self.having(VmOutcome.UNKNOWN) or stays or self.moving.fits is None
            else True
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of drains, node by node."""

    nodes: tuple[NodePlan, ...]
    """The worst node first."""
    whole: bool
    """Whether the plan is for all nodes of the cluster."""
    methods: tuple[str, ...] | None
    """The workload update methods in force. None: not needed, or they cannot be determined."""
    updates: tuple[Update, ...]
    """How an update of KubeVirt would reach the running VMs. Empty for a single node."""
    unseen: tuple[str, ...]
    """The data that could not be read. There may be more VMs than are listed."""
    unread_nodes: tuple[str, ...] = ()
    """The data of these that may name more nodes."""
    uncovered: tuple[str, ...] | None = None
    """Nodes with VMs that no health check can remediate, so their VMs do not restart after a loss.
    None: unknown.
    """
    otherwise: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """VMs of those nodes by what brings them back all the same."""
    held: tuple[str, ...] = ()
    """Paused pools, silent nodes and held operators: an upgrade stops at them although every node
    can be drained.
    """
    unsure: tuple[str, ...] = ()
    """What may stop an upgrade so, and could not be determined."""
    stopped: int | None = None
    """How many VMs an upgrade stops for good, where it was rehearsed."""
    before: str = ""
    """What an upgrade does before its nodes, where it was rehearsed."""
    awaited: tuple[str, ...] = ()
    """The nodes whose return ends what keeps others, and that a rehearsed upgrade brings back."""
    undrained: str = ""
    """That an upgrade does not drain the nodes that cannot be drained, in its words."""
    closed: tuple[ClosedTarget, ...] = ()
    """The nodes to which no VM of another one can go now, where all of them are known."""
    reported: tuple[ReportedProblem, ...] = ()
    """What the platform reports as wrong besides."""

    def having(self, outcome: VmOutcome) -> tuple[Forecast, ...]:
        """Return the forecasts with this outcome on all nodes."""
        return tuple(vm for node in self.nodes for vm in node.having(outcome))

    @property
    def drainable(self) -> bool | None:
        """Whether every node of the plan can be drained now. None: it cannot be determined."""
        verdicts = {node.drainable for node in self.nodes}
        if False in verdicts:
            return False
        return None if self.unread_nodes or None in verdicts else True

    def with_nodes(self, nodes: Iterable[NodePlan]) -> Plan:
        """Return the plan with other plans of the same nodes, the worst first."""
        return replace(self, nodes=tuple(sorted(nodes, key=_badness)))


def plan(
    cluster: Cluster, *nodes: str, unseen: Iterable[str] = (), in_order: InOrder = map
) -> Plan:
    """Return what a drain of each of these nodes would do now, as if it alone were drained.

    Args:
        cluster: the cluster.
        nodes: names of nodes; none: every node of the cluster.
        unseen: what could not be read although it may name more nodes.
        in_order: does the work on each node.

    Raises:
        LookupError: a node does not exist.
    """
    whole = not nodes
    names = (
        node_names(cluster)
        if whole
        else sorted({selection.existing(name, cluster) for name in nodes})
    )
    plans = sorted(first_alone(in_order, partial(node_plan, cluster=cluster), names), key=_badness)
    methods = workload_updates.in_force(cluster) if whole else None
    unread_nodes = (*unseen, *(_unread_nodes(plans, cluster) if whole else ()))
    return Plan(
        nodes=tuple(plans),
        whole=whole,
        methods=methods,
        updates=() if methods is None else cluster.cached(_updates),
        unseen=tuple(
            dict.fromkeys((*unread_nodes, *(what for node in plans for what in node.unseen)))
        ),
        unread_nodes=unread_nodes,
        uncovered=outside_checks.uncovered(_vms(plans), cluster) if whole else None,
        otherwise=outside_checks.otherwise(_vms(plans), cluster) if whole else {},
        held=tuple(chain.from_iterable(held(cluster) for held in _HELD)) if whole else (),
        closed=_closed(plans, cluster) if whole and VMI not in cluster.cached(_unread) else (),
    )


def _closed(plans: Sequence[NodePlan], cluster: Cluster) -> tuple[ClosedTarget, ...]:
    placements = {node.name: [row.placement for row in node.forecasts] for node in plans}
    updated = {node.name for node in plans if node.update is not None}
    return closed_targets.closed(placements, updated, cluster)


def node_names(cluster: Cluster) -> list[str]:
    """Return the names of the nodes that are known or that VMs name."""
    return sorted({*each(cluster, NODE, _name), *vmis.occupied(cluster)})


def node_plan(name: str, cluster: Cluster) -> NodePlan:
    """Return the effects of a drain of one node,
    also of one that VMs name although it is not known.
    """
    return keep(cluster, ("node plan", name), partial(_node_plan, name))


def _updates(cluster: Cluster) -> tuple[Update, ...]:
    portions = range(len(cluster.cached(_portions)))
    return tuple(
        chain.from_iterable(
            keep(cluster, (_of_portion, each), partial(_of_portion, each)) for each in portions
        )
    )


def _portions(cluster: Cluster) -> Mapping[int, tuple[Object, ...]]:
    found = running(cluster)
    return {
        start // _PORTION: tuple(found[start : start + _PORTION])
        for start in range(0, len(found), _PORTION)
    }


def _of_portion(number: int, cluster: Cluster) -> tuple[Update, ...]:
    methods = workload_updates.in_force(cluster) or ()
    return tuple(update(vmi, methods, cluster) for vmi in entry(cluster, _portions, number) or ())


def _name(obj: Object) -> str:
    return obj.name


def _vms(plans: Iterable[NodePlan]) -> Mapping[str, list[Object]]:
    return {node.name: [row.vmi for row in node.forecasts] for node in plans}


def _unread_nodes(plans: Sequence[NodePlan], cluster: Cluster) -> Iterator[str]:
    """Yield what could not be read although it may hold more nodes,
    or VMs on nodes that are not known.
    """
    unread = cluster.cached(_unread)
    if not plans:  # every cluster has nodes: an empty list is not an answer
        yield "the nodes of the cluster: none is known"
    yield from (unread[kind] for kind in (NODE, VMI) if kind in unread)


def _node_plan(name: str, cluster: Cluster) -> NodePlan:
    node = find(cluster, NODE, "", name)
    known: list[Forecast] = []
    with contextlib.suppress(Unseen):  # after those that are known; ``unseen`` says it
        known.extend(unbound_claims.forecast(vmi, cluster) for vmi in on_node(cluster, name))
    control = control_path.of_node(cluster, name)
    forecasts, stopped, open_ends = overruling.overrule(known, node, control, cluster)
    moving = [found for found in forecasts if found.outcome not in vm_outcomes.SHUT_DOWN]
    visitors = tuple(vm_outcomes.visitors(name, cluster))
    pods = pod_evictions.of_node(cluster, name, has_vms=bool(forecasts))
    pods = control_path.with_webhooks(pods, name, cluster)
    every = dict.fromkeys((*stopped, *pods.blockers))
    pods = replace(
        pods,
        blockers=tuple(replace(found, remedy=typed_remedies.of_blocker(found)) for found in every),
    )
    unread = cluster.cached(_unread)
    doubts = [
        *(unread[kind] for kind in _needed((*forecasts, *visitors)) if kind in unread),
        *open_ends,
    ]
    doubts += [found.unseen for found in (*moving, *visitors) if found.unseen]
    room, without = _room(moving, node, cluster)
    forecasts = tuple(crowded_vms.told(forecasts, room, cluster))
    packing, unseen = (
        _room(forecasts, node, cluster) if len(moving) < len(forecasts) else (room, without)
    )
    doubts += [*without, *pods.unseen]
    unseen += [found.unseen for found in forecasts if found.unseen]
    waiting = tuple(crowded_vms.waiting(forecasts, packing, cluster)) if room.fits else ()
    return NodePlan(
        name,
        tuple(readiness.state(node)),
        tuple(sorted(forecasts, key=_rank)),
        pods,
        packing,
        room,
        tuple(dict.fromkeys(doubts)),
        tuple(dict.fromkeys((*doubts, *unseen))),
        visitors,
        (*waiting, *_notes(node, forecasts, cluster)),
        waiting,
        control.components,
        updaters.of_nodes(cluster).get(name),
        not forecasts and VMI not in unread and evicted_pods.has_nothing_to_evict(name, cluster),
        name in cluster.cached(etcd_guard.held_nodes),
        readiness.of_node(name, pods.waits, cluster),
    )


def _room(
    forecasts: Sequence[Forecast], node: Object | None, cluster: Cluster
) -> tuple[Packing, list[str]]:
    """Return whether the VMs that need room find it at the same time,
    and what could not be read of that.

    A node that was not read may not report, which decides on what becomes of its VMs.
    """
    unread = cluster.cached(_unread)
    unseen = [what for found in forecasts if found.needs_room for what in found.placement.unseen]
    packing = _packing(forecasts, cluster)
    blind = [
        unread[kind] for kind in (VMI, POD, *([NODE] if node is None else [])) if kind in unread
    ]
    if packing.fits and blind:
        packing = replace(packing, fits=None)
        unseen += blind
    if packing.fits is None and not unseen:
        given_up = (
            "an order that topology spread allows"
            if packing.in_turn
            else "the search for room was given up"
        )
        unseen += _without_room(forecasts, packing) or [given_up]
    return packing, unseen


def _notes(node: Object | None, forecasts: Sequence[Forecast], cluster: Cluster) -> Iterator[str]:
    if node is not None:
        yield from node_notes.notes(node, cluster)
    rows = (each for each in forecasts if each.outcome is VmOutcome.MIGRATES)
    # what is under way has its own time-out
    moving = [each.vmi for each in rows if each.state.migration is None]
    yield from vm_states_failures.long_migrations(moving, cluster)


def _packing(forecasts: Sequence[Forecast], cluster: Cluster) -> Packing:
    """Return whether the VMs that need room find it at the same time.

    Where all of them find no room, ``fits`` is false only if those that certainly need room find
    none.
    """
    packing = capacity.packing(crowded_vms.leaving(forecasts), cluster)
    if packing.fits is not False or not any(found.may_stop for found in forecasts):
        return packing
    certain = crowded_vms.leaving([found for found in forecasts if not found.may_stop])
    return (
        packing if capacity.packing(certain, cluster).fits is False else replace(packing, fits=None)
    )


def _without_room(forecasts: Sequence[Forecast], packing: Packing) -> list[str]:
    """Return the nodes that may have room, but do not say how much,
    or where preemption may make room.
    """
    placements = [found.placement for found in forecasts if found.needs_room]
    silent = {name for placement in placements for name in placement.undetermined}
    preempting = packing.preempting or any(placement.preempting for placement in placements)
    return [
        *(f"room on node {name}" for name in sorted(silent)),
        *[preemption_effects.UNSEEN] * preempting,
    ]


def _needed(forecasts: Sequence[Forecast]) -> Iterator[Kind]:
    """Yield the kinds of which every object must be known before a node is called drainable."""
    yield from (VMI, POD, PDB, NODE)
    if any(found.outcome is VmOutcome.MIGRATES for found in forecasts):
        yield from (LIMIT_RANGE, RESOURCE_QUOTA, VMIM)


def _unread(cluster: Cluster) -> Mapping[Kind, str]:
    """Return the kinds of which more objects may exist than are known,
    each with what could not be read.
    """
    gathered = {
        kind: unlisted(cluster, kind)
        for kind in (LIMIT_RANGE, NODE, PDB, POD, RESOURCE_QUOTA, VMIM)
    }
    gathered[VMI] = vmis.unread(cluster)
    return {kind: unseen for kind, unseen in gathered.items() if unseen}


def _rank(found: Forecast) -> tuple[int, str]:
    return WORST_FIRST[found.outcome], found.vmi.full_name


def _badness(node: NodePlan) -> tuple[int, tuple[int, ...], str]:
    """Return a key that sorts the worst node first: those that block,
    then by the number of VMs of each outcome.
    """
    counts: Mapping[VmOutcome, int] = Counter(found.outcome for found in node.forecasts)
    verdict = {False: 0, None: 1, True: 2}[node.drainable]
    return verdict, tuple(-counts[outcome] for outcome in VmOutcome), node.name
