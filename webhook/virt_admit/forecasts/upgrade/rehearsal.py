"""The rehearsal of an upgrade: order, waves, hours, moves,
what stops it and which setting saves most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.changes import old_launchers
from virt_admit.forecasts.drain.control import held_operators
from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.room.crowded_vms import TOLD
from virt_admit.forecasts.drain.targets.closed_targets import ClosedTarget
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.placement import preemption_effects
from virt_admit.forecasts.placement.components.controllers import replaced_providers
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.forecasts.upgrade import (
    assumed_fixes,
    drain_waits,
    estimate_basis,
    harvester_waits,
    outcomes,
    pool_obstacles,
    random_runs,
    reboots,
    rollouts,
    savings,
    simulated_world,
    upgrade_progress,
    vm_interruptions,
)
from virt_admit.forecasts.upgrade.assumed_fixes import IfFixed
from virt_admit.forecasts.upgrade.drains import failed_drains, kept_pods, undrained_nodes
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.outcomes import Outcome, Wave, leftovers, shown, undetermined
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.forecasts.upgrade.pools import unpooled_nodes, upgrade_refusals
from virt_admit.forecasts.upgrade.reboots import RebootCheck
from virt_admit.forecasts.upgrade.rollouts import Driver, Pool
from virt_admit.forecasts.upgrade.savings import FasterSetting
from virt_admit.forecasts.upgrade.simulated_world import Start, estimated, world
from virt_admit.forecasts.upgrade.simulation import World, simulate
from virt_admit.forecasts.upgrade.upgrade_progress import UpgradeProgress
from virt_admit.forecasts.upgrade.vm_interruptions import VmMoves
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.settings.parallel_migrations import limits
from virt_admit.model.messages import count
from virt_admit.model.node_updates import cluster_updates, talos_upgrades
from virt_admit.model.node_updates.operators import paused_pools
from virt_admit.model.node_updates.operators.release_refusals import RefusedReleases
from virt_admit.model.problems import ProblemCause, ProblemId, problem_of

READS: Final = union(drain_plan.READS, rollouts.READS, held_operators.READS)
"""The fields that a rehearsal reads."""


@dataclass(frozen=True, slots=True)
class Options:
    """What an administrator may try out."""

    driver: Driver | None = None
    """None: the one that probably updates the cluster."""
    max_unavailable: str | None = None
    node_minutes: int = 10
    """Minutes for the update and the reboot of one node."""
    from_start: bool = False
    """Whether to ignore what is under way."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Something that ends the upgrade. ``node`` is empty for a pool."""

    node: str
    reason: str
    remedy: str
    problem: ProblemId | None = None
    """None: it is the consequence of another stop."""
    behind: tuple[ProblemId, ...] = ()
    """The problems that had to be taken as fixed to see it."""
    awaits: str = ""
    """The maintenance that it goes on after; empty: another cause."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result. ``duration`` is set only if ``nodes_complete``."""

    driver: Driver
    nodes_complete: bool | None
    """Whether the update of the nodes ends, whatever holds operators; None: it cannot be
    determined.
    """
    unseen: tuple[str, ...]
    duration: Range | None
    rests_on: tuple[str, ...]
    waves: tuple[Wave, ...]
    vms: tuple[VmMoves, ...]
    stops: tuple[Stop, ...]
    faster: tuple[FasterSetting, ...]
    health_checks: tuple[RebootCheck, ...] = ()
    """The health checks that watch the nodes,
    those first that would act on a node that is only being updated.
    """
    progress: UpgradeProgress | None = None
    """How far the roll-out is that is under way. None: none is, or nothing says so."""
    assumed: tuple[ProblemId, ...] = ()
    """The problems that were taken as fixed. ``possible`` and ``duration`` never rest on them."""
    if_fixed: IfFixed | None = None
    """How the upgrade goes if they are fixed. None: nothing was taken as fixed."""
    operators: tuple[StuckOperator, ...] = ()
    """What KubeVirt and the operators of VMs say does not go on. ``duration`` is about the nodes
    alone.
    """
    reported: tuple[ReportedProblem, ...] = ()
    """What objects around the stops report as wrong."""
    refused: RefusedReleases | None = None
    """Which releases of OpenShift are refused. ``possible`` is about the others."""
    before_nodes: str = ""
    """What an update under way does before the nodes, from which times count; empty: nothing."""
    paused: tuple[str, ...] = ()
    """Pools that are paused as they are meant to be. ``possible`` is about the other nodes."""
    closed: tuple[ClosedTarget, ...] = ()
    """The nodes to which no VM of another one can go now: the others have to have the room."""
    old_launchers: str = ""
    """Which VMs run launchers older than KubeVirt, and what updates them; empty: none is known."""
    may_hold: tuple[str, ...] = ()
    """Operators that could not be read, any of which may be held."""

    @property
    def possible(self) -> bool | None:
        """Whether the upgrade ends: not while an operator is held, whatever the nodes do."""
        holds = {each.holds for each in self.operators}
        if True in holds:
            return False
        is_open = None in holds or bool(self.may_hold)
        return None if is_open and self.nodes_complete else self.nodes_complete

    @property
    def stopped(self) -> int:
        """The number of VMs that it shuts down for good: what a possible upgrade costs."""
        return sum(vm.stays_stopped for vm in self.vms)

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the estimate rests on; empty: no time was estimated."""
        return self.rests_on if self.waves or self.if_fixed is not None else ()

    @property
    def ends(self) -> Range | None:
        """In which time the upgrade ends; None: it does not, or that is not known."""
        return self.duration if self.possible else None


def rehearse(
    cluster: Cluster,
    options: Options,
    progress: Callable[[str], None] = lambda _: None,
    *,
    forecast_only: bool = False,
    in_order: InOrder = map,
) -> Rehearsal:
    """Simulate an upgrade of all nodes.

    ``forecast_only``: do not try other settings, which takes three more runs. ``in_order`` does the
    drains and the runs.

    Raises:
        ValueError: ``max_unavailable`` is not a number or a percentage.
    """
    progress("judging the drain of every node")
    plan = drain_plan.plan(cluster, in_order=in_order)
    return run(cluster, options, plan, progress, forecast_only=forecast_only, in_order=in_order)


def run(
    cluster: Cluster,
    options: Options,
    plan: Plan,
    progress: Callable[[str], None] = lambda _: None,
    *,
    forecast_only: bool = False,
    fixed: Collection[ProblemId] = (),
    in_order: InOrder = map,
) -> Rehearsal:
    """Simulate an upgrade with the drains of all nodes given, as if these problems were fixed."""
    driver = options.driver or rollouts.default_driver(cluster)
    if driver is Driver.PLAIN and upgrade_refusals.follows_maintenance(cluster):
        options = replace(options, from_start=True)  # its times count from the end of that
    result = _run(cluster, options, plan, progress, fixed, in_order, forecast_only=forecast_only)
    said = {stop.reason for stop in result.stops}
    held = (each for each in held_operators.of_cluster(cluster) if each.reason not in said)
    may_hold = tuple(held_operators.unread(cluster))
    result = replace(result, operators=tuple(held), closed=plan.closed, may_hold=may_hold)
    result = replace(result, old_launchers=old_launchers.beside_upgrade(cluster))
    blind = list(may_hold)
    if any(each.holds is None for each in result.operators):
        kinds = (CAPI_MACHINE, NODE)
        blind += (each.what for kind in kinds for each in more_may_exist(cluster, kind))
    result = replace(result, unseen=tuple(dict.fromkeys((*result.unseen, *blind))))
    if result.driver is Driver.PLAIN:
        every = (*upgrade_refusals.steps(cluster), *result.operators)
        return replace(result, operators=every, before_nodes=_before_nodes(result, cluster))
    if result.driver is Driver.CLUSTER_API:
        before = "" if result.stops else replaced_providers.before_nodes(cluster)
        return replace(result, before_nodes=before)
    new, paused = cluster_updates.release(cluster), tuple(paused_pools.notes(cluster))
    return replace(result, refused=new.refused, before_nodes=new.before_nodes, paused=paused)


def _before_nodes(result: Rehearsal, cluster: Cluster) -> str:
    """Return what comes before the first node that an administrator updates; empty: nothing."""
    refused = upgrade_refusals.waits(cluster)
    if refused or result.stops:
        return refused
    begun = harvester_waits.before_nodes(cluster) if result.progress is not None else ""
    return begun or (
        talos_upgrades.before_nodes(cluster) or next(awaited_return.all_fenced(cluster), "")
    )


def _run(
    cluster: Cluster,
    options: Options,
    plan: Plan,
    progress: Callable[[str], None],
    fixed: Collection[ProblemId],
    in_order: InOrder,
    *,
    forecast_only: bool,
) -> Rehearsal:
    driver = options.driver or rollouts.default_driver(cluster)
    plan = undrained_nodes.without_drains(
        kept_pods.with_kept_pods(plan, driver, cluster), driver, cluster
    )
    plan = assumed_fixes.fixed_plan(plan, fixed)
    begun = () if options.from_start else rollouts.in_flight(driver, cluster)
    unseen = [
        *upgrade_progress.unseen(begun, plan),
        *(blind.what for blind in rollouts.unread(cluster, options.driver, begun)),
    ]
    drained = upgrade_progress.still_drained(begun, plan)
    drained -= paused_pools.waiting_nodes(cluster) if driver is Driver.MACHINE_CONFIG else set()
    left = [node for node in plan.nodes if node.name in drained]
    kept = undrained_nodes.without_unread(left, driver, cluster)
    kept = kept if options.from_start else drain_waits.until_ended(kept, cluster)
    so_far = upgrade_progress.progress(begun, plan, cluster) if begun else None
    too_long = upgrade_progress.late(begun, options.node_minutes, cluster)
    late = _stopped(each for each in too_long if each.problem not in fixed)
    pools: tuple[Pool, ...] = ()
    try:
        pools = assumed_fixes.fixed_pools(
            rollouts.pools(driver, cluster, options.max_unavailable, _by_load(plan), begun), fixed
        )
        plan = drain_waits.without_awaited(plan, pools)
        allowed = assumed_fixes.fixed_limits(limits(cluster), fixed)
    except Unseen as blind:
        return _unknown(driver, plan, kept, (*unseen, blind.what), late, so_far, pools)
    if plan.nodes and not begun and not any(pool.nodes or pool.obstacle for pool in pools):
        unseen += unpooled_nodes.unknown(driver, cluster, of_machines=driver is Driver.CLUSTER_API)
    waits = drain_waits.unknown(driver, plan, pools, begun, cluster)
    unseen += [*chain.from_iterable(waits.values()), *rollouts.doubts(driver, pools, cluster)]
    told = {*waits, *pool_obstacles.doubted_nodes(begun, cluster), *(stop.node for stop in late)}
    unseen += upgrade_progress.stalled(begun, plan, pools, options.node_minutes, told, cluster)
    unseen += _undecided(left)
    if unseen:
        return _unknown(driver, plan, kept, unseen, late, so_far, pools)
    waiting = upgrade_progress.without_late(pools, [stop.node for stop in late])
    start = Start(
        plan, waiting, allowed, options.node_minutes * 60, begun, continued=not options.from_start
    )
    result, world, runs = _simulated(cluster, driver, start, late, progress, in_order)
    updated = [node for pool in pools for node in pool.to_do]
    checks = reboots.health_checks(cluster, driver, updated, start.reboot)
    so_far = so_far and replace(so_far, notes=(*so_far.notes, *vm_interruptions.lost(runs)))
    result = replace(result, health_checks=checks, progress=so_far)
    if not result.nodes_complete or forecast_only:
        return result
    progress("trying other settings")
    faster = savings.faster(world, runs[1], savings.one_by_one(plan, cluster), in_order)
    return replace(result, faster=tuple(faster))


def _undecided(nodes: Iterable[NodePlan]) -> list[str]:
    """Return the VMs whose outcome is not known, and why, unless what is unseen names them."""
    return [
        f"{row.vmi.full_name}: {row.reason}"
        for node in nodes
        for row in node.undecided
        if row.vmi.full_name not in row.unseen
    ]


def _by_load(plan: Plan) -> list[str]:
    """Return the nodes, those with the fewest VMs first."""
    in_order = sorted(plan.nodes, key=lambda node: (len(node.forecasts), node.name))
    return [node.name for node in in_order]


def _unknown(
    driver: Driver,
    plan: Plan,
    left: Iterable[NodePlan],
    unseen: Sequence[str],
    late: Sequence[Stop],
    so_far: UpgradeProgress | None,
    pools: Sequence[Pool],
) -> Rehearsal:
    """Return that nothing can be determined, unless what was read certainly stops a pool, a node
    under way, or a drain that is left.

    ``pools``: empty if they are not known.
    """
    certain = _certain_stops(drain_waits.without_awaited_of(left, pools or None))
    stops = (*late, *_obstacles(pools), *certain)
    return Rehearsal(
        driver,
        False if stops else None,
        tuple(dict.fromkeys(unseen)),
        None,
        (),
        (),
        tuple(vm_interruptions.unmoved(plan)),
        stops,
        (),
        progress=so_far,
    )


def _certain_stops(
    nodes: Iterable[NodePlan],
    holds: Callable[[Forecast], bool] = lambda row: row.outcome is VmOutcome.BLOCKS,
) -> Iterator[Stop]:
    """Yield one stop for each node and cause.

    ``holds``: whether a VM certainly keeps its node from becoming empty.
    """
    for node in nodes:
        found: dict[ProblemId | None, dict[str, Stop]] = {}
        told = {blocker.reason for blocker in node.pods.lasting}  # without a VM: alike at all nodes
        for row in filter(holds, node.forecasts):
            for problem in (each for each in row.problems if each.reason not in told):
                vm = row.vmi.full_name
                stop = Stop(node.name, f"{vm}: {problem.reason}", problem.remedy, problem.id)
                found.setdefault(problem.id, {}).setdefault(vm, stop)
        for stop in _other_pods(node):
            found[stop.problem] = {"": stop}
        yield from (_together(tuple(each.values())) for each in found.values())


def _together(stops: Sequence[Stop]) -> Stop:
    first, more = stops[0], len(stops) - 1
    return (
        replace(first, reason=f"{first.reason} (and {count(more, 'more VM')})") if more else first
    )


def _other_pods(node: NodePlan) -> Iterator[Stop]:
    for blocker in node.pods.lasting:
        yield Stop(node.name, f"{blocker.subject}: {blocker.reason}", blocker.remedy, blocker.id)


# --- the simulation -------------------------------------------------------------------------------


def _simulated(
    cluster: Cluster,
    driver: Driver,
    start: Start,
    late: tuple[Stop, ...],
    progress: Callable[[str], None],
    in_order: InOrder,
) -> tuple[Rehearsal, World, Sequence[Outcome]]:
    plan, pools = start.plan, start.pools
    free = [pool for pool in pools if pool.obstacle is None]
    estimates = estimated(plan, cluster)
    worlds = [world(cluster, start, estimates, bound) for bound in ("low", "high")]
    progress("simulating the shortest and the longest run")
    low, high = in_order(simulate, worlds)
    runs = [low, high]
    emptied = {*upgrade_progress.emptied(start.begun), *worlds[0].deadlines}
    updated = {node for pool in free for node in pool.to_do} - emptied
    for_good = frozenset(vm.name for vm in worlds[0].vms if vm.blocked)
    left = (node for node in plan.nodes if node.name in updated)
    lasting = tuple(_certain_stops(left, lambda row: row.vmi.full_name in for_good))
    failed = _stopped(each for pool in free for each in pool.failing)
    undrained = _certain_stops(failed_drains.nodes(plan, pools))
    held = len(free) < len(pools)
    certain = bool(failed or late or lasting or held)
    if (
        not certain
        and bool(low.stops) == bool(high.stops)
        and not any(node in worlds[0].stuck for node in low.stops)
    ):
        runs += in_order(simulate, random_runs.worlds(worlds))
    stops = (*failed, *late, *_stops(plan, pools, lasting, runs), *undrained)
    stopped = all(run.stops for run in runs)
    preempting = stopped and simulated_world.depends_on_preemption(plan, worlds, runs, cluster)
    unseen = (preemption_effects.UNSEEN,) if preempting else tuple(undetermined(runs))
    certain = bool((stopped and not preempting) or failed or late or held)
    possible = False if certain else None if unseen else not stops
    lasts = outcomes.whole(run.seconds for run in runs) if possible else None
    result = Rehearsal(
        driver,
        possible,
        unseen,
        lasts,
        tuple(estimate_basis.rests_on(driver, start, estimates.values(), cluster)),
        outcomes.waves(pools, low, high, lasts, drain_waits.first(plan, cluster)),
        tuple(vm_interruptions.moved(plan, low, high, cluster)),
        stops,
        (),
    )
    return result, worlds[1], runs


# --- what is said of it ---------------------------------------------------------------------------


def _stops(
    plan: Plan, pools: Sequence[Pool], lasting: Sequence[Stop], runs: Sequence[Outcome]
) -> Iterator[Stop]:
    """Yield what stops the upgrade: pools, then what certainly keeps a node from becoming empty,
    then what shows in a run, at last the nodes that it never reaches.
    """
    yield from _obstacles(pools)
    reasons = shown(runs)
    yield from sorted(
        lasting,
        key=lambda stop: list(reasons).index(stop.node) if stop.node in reasons else len(reasons),
    )
    certain = {stop.node for stop in lasting}
    held = {(stop.node, stop.reason): stop for node in plan.nodes for stop in _other_pods(node)}
    rows = {row.vmi.full_name: row for node in plan.nodes for row in node.forecasts}
    room = {on.name: row for on in plan.nodes for row in on.without_room if TOLD in row.reason}
    for node, reason in reasons.items():
        if node not in certain:
            row = rows.get(reason.partition(": ")[0])
            yield held.get((node, reason)) or _without_room(node, reason, row, room.get(node))
    if not reasons:
        for node in leftovers([pool for pool in pools if pool.obstacle is None], runs[0]):
            yield Stop(node, "it is never reached", "See the other stops.")


def _obstacles(pools: Iterable[Pool]) -> tuple[Stop, ...]:
    return _stopped(dict.fromkeys(pool.obstacle for pool in pools if pool.obstacle is not None))


def _stopped(found: Iterable[Obstacle]) -> tuple[Stop, ...]:
    return tuple(
        Stop(each.node, each.reason, each.remedy, each.problem, awaits=each.awaits)
        for each in found
    )


def _without_room(node: str, reason: str, row: Forecast | None, crowded: Forecast | None) -> Stop:
    """Return that a VM finds no room in a run; if one finds none now, for the reason of a drain."""
    row = crowded if row is not None and row.outcome is VmOutcome.MIGRATES and crowded else row
    other = crowded.remedy if crowded else "Add room or let another node take it."
    remedy = (row.remedy if row else "") or other
    if row is None:
        return Stop(node, reason, remedy)
    here = row.vmi.at("status", "nodeName").text == node
    if row is crowded or (here and row.outcome is VmOutcome.BLOCKS):
        reason = f"{row.vmi.full_name}: {row.reason}"
    known = row.problems[0].id if row.problems else None
    return Stop(node, reason, remedy, known or problem_of(ProblemCause.NO_ROOM, row.vmi))
