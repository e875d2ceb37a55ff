"""How far a roll-out is: which nodes are done, which are under way and what they wait for,
and which come next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.endless import unasked_vms
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.forecasts.remediation.awaited_return import OverdueReturn
from virt_admit.forecasts.upgrade import drain_waits
from virt_admit.forecasts.upgrade.operators import leaving_vms, standing_nodes
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.forecasts.upgrade.rollouts import Pool
from virt_admit.model import certificate_requests
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    DAEMON_SET,
    MACHINE_CONFIG_POOL,
    MACHINE_DEPLOYMENT,
    NM,
    NODE,
    PLAN,
)
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates import (
    harvester_upgrades,
    kured,
    machine_rollouts,
    maintenance_updates,
    plan_progress,
    talos_upgrades,
)
from virt_admit.model.node_updates.node_phases import (
    EMPTIED,
    IN_FLIGHT,
    NodeUpdate,
    Phase,
    PoolUpdate,
    by_node,
)
from virt_admit.model.node_updates.update_orders import LONG
from virt_admit.model.problems import ProblemCause, problem_of


@dataclass(frozen=True, slots=True)
class NodeInFlight:
    """A node whose update has begun and not ended."""

    node: str
    phase: Phase
    since: datetime | None
    """None: not known."""
    age: str
    """How long ago that was; empty: not known."""
    waits_for: str
    """VMs or pods that are still on it, or the words of the updater. Empty:
    it waits for nothing else.
    """
    maintenance: str = ""
    """The NodeMaintenance that has it, or the mode of Harvester, which may be about anything.
    Empty: an updater has it.
    """
    exact: bool = True
    """Whether ``since`` is the begin of the phase, not of the whole."""
    begun: bool = True
    """Whether it is on its way to another configuration."""


@dataclass(frozen=True, slots=True)
class UpgradeProgress:
    """The nodes of a roll-out by how far they are."""

    done: tuple[str, ...]
    in_flight: tuple[NodeInFlight, ...]
    next: tuple[str, ...]
    """Those that are chosen as soon as the updater looks again."""
    waiting: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the others wait for."""

    @property
    def total(self) -> int:
        """The number of all its nodes."""
        return len(self.done) + len(self.in_flight) + len(self.next) + len(self.waiting)


def progress(begun: Sequence[PoolUpdate], plan: Plan, cluster: Cluster) -> UpgradeProgress:
    """Return how far a roll-out is, with what is left on the nodes that are drained."""
    plans = {node.name: node for node in plan.nodes}
    every = [
        (name, update)
        for pool in begun
        for name, update in pool.nodes.items()
        if update.phase is not Phase.DONE or not _is_outside(pool)
    ]

    def in_phase(phase: Phase) -> tuple[str, ...]:
        return tuple(name for name, update in every if update.phase is phase)

    flying = tuple(
        NodeInFlight(
            name,
            update.phase,
            update.since,
            vm_states_times.age(update.since, cluster),
            _of_harvester(name, cluster) or _waits_for(update, plans.get(name)),
            _maintenance(name, update, cluster),
            update.exact,
            update.begun,
        )
        for name, update in every
        if update.phase in IN_FLIGHT
    )
    held = (
        tuple(kured.words(cluster))
        if any(update.kind == DAEMON_SET.kind for _, update in every)
        else ()
    )
    if any(pool.kind == MACHINE_DEPLOYMENT.kind for pool in begun):
        held = (*held, *machine_rollouts.starting(cluster))
    left = (each.node for each in flying if each.phase is Phase.DRAINING and each.waits_for)
    held = (*held, *drain_waits.time_outs(left, cluster))
    return UpgradeProgress(
        in_phase(Phase.DONE), flying, in_phase(Phase.NEXT), in_phase(Phase.WAITING), held
    )


def _maintenance(name: str, update: NodeUpdate, cluster: Cluster) -> str:
    """Return what an administrator has put a node into maintenance with; empty: nothing."""
    if update.kind == NM.kind:
        return f"{update.kind} {update.name}"
    node = find(cluster, NODE, "", name) if update.kind == NODE.kind else None
    of_harvester = node is not None and maintenance_updates.is_in_maintenance(node)
    return "the maintenance mode of Harvester" if of_harvester else ""


def _is_outside(pool: PoolUpdate) -> bool:
    """Return whether a pool has no part in the roll-out of the others: each MachineDeployment has
    its own, and all MachineConfigPools get one release.
    """
    return pool.kind == MACHINE_DEPLOYMENT.kind and not pool.in_flight


_WIDTH: Final = 80


def _waits_for(update: NodeUpdate, plan: NodePlan | None) -> str:
    """Return what a node waits for: what blocks its drain or refuses it for a moment, and its VMs;
    else the words of the updater.
    """
    if update.phase is not Phase.DRAINING or plan is None:
        return update.waits_for
    blockers = [found.subject for found in (*plan.pods.lasting, *drain_waits.foreign(plan))]
    return (
        names([*blockers, *(row.vmi.full_name for row in plan.forecasts)], _WIDTH)
        or update.waits_for
    )


def _of_harvester(name: str, cluster: Cluster) -> str:
    """Return what Harvester waits for before the drain of a node begins: volumes, or a VMI that has
    ended.
    """
    node = find(cluster, NODE, "", name)
    volumes = unasked_vms.awaited(node, cluster) if node is not None else ""
    return volumes or standing_nodes.awaited_vmi(name, cluster)


def still_drained(begun: Sequence[PoolUpdate], plan: Plan) -> frozenset[str]:
    """Return the nodes that are being drained, or are drained later: all if none has begun."""
    if not begun:
        return frozenset(node.name for node in plan.nodes)
    over = (*EMPTIED, Phase.DONE, Phase.FAILING, Phase.NOT_PART)
    return frozenset(name for name, update in by_node(begun) if update.phase not in over)


def emptied(begun: Sequence[PoolUpdate]) -> frozenset[str]:
    """Return the nodes that are under way and whose drain has ended."""
    return frozenset(name for name, update in by_node(begun) if update.phase in EMPTIED)


def unseen(begun: Sequence[PoolUpdate], plan: Plan) -> tuple[str, ...]:
    """Return what could not be read, except about pods of nodes whose drain has ended, which only
    have to come back, and about all VMs of nodes that are done: no drain asks them to move.
    """
    over, done = emptied(begun), _done(begun)
    ended = {what for node in plan.nodes if node.name in over for what in node.pods.unseen}
    ended |= {what for node in plan.nodes if node.name in done for what in node.unseen}
    left = {what for node in plan.nodes if node.name not in over | done for what in node.unseen}
    return tuple(what for what in plan.unseen if what not in ended or what in left)


def _done(begun: Sequence[PoolUpdate]) -> frozenset[str]:
    """Return the nodes that a roll-out does not drain any more, or not at all."""
    over = (Phase.DONE, Phase.NOT_PART)
    return frozenset(name for name, update in by_node(begun) if update.phase in over)


def rests_on(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[str]:
    """Yield what the end of the nodes under way depends on, besides the updater:
    who ends their maintenance. A node that leaves with its Machine has no end of it.
    """
    flying = [(name, update.kind) for name, update in by_node(begun) if update.phase in IN_FLIGHT]
    waiting = [name for name, kind in flying if kind not in (*_ROLLED_OUT, CAPI_MACHINE.kind)]
    by_whom: dict[str, list[str]] = {}
    for name in waiting:
        by = talos_upgrades.of_node(name, cluster) or "an administrator"
        by_whom.setdefault(by, []).append(name)
    for by, nodes in by_whom.items():
        yield f"{by} ends the maintenance of {names(nodes)} in that time"


_ROLLED_OUT: Final = (
    DAEMON_SET.kind,
    MACHINE_CONFIG_POOL.kind,
    MACHINE_DEPLOYMENT.kind,
    PLAN.kind,
    *harvester_upgrades.KINDS,
)
"""What updates nodes by itself; a node in maintenance waits for its administrator."""


def late(begun: Sequence[PoolUpdate], minutes: int, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield the nodes that are certainly updated for more than twice the given minutes, or have not
    reported for three times as long.
    """
    for name, update in by_node(begun):
        node = find(cluster, NODE, "", name)
        begins = update.phase in EMPTIED and update.kind in _ROLLED_OUT and minutes
        if node is None or not begins:
            continue
        problem = problem_of(ProblemCause.NODE_UPDATE_LATE, node)
        look = typed("Look at the node and its console", about("describe", node, NODE))
        over = awaited_return.overdue(name, cluster, timedelta(minutes=3 * minutes))
        if over is not None:
            remedy = capital(awaited_return.advice(name, cluster, look))
            yield Obstacle(_not_back(name, over, minutes, cluster), remedy, problem, node=name)
        elif update.exact and vm_states_times.is_older(
            update.since, timedelta(minutes=2 * minutes), cluster
        ):
            age = vm_states_times.age(update.since, cluster)
            waits = f", waits for {update.waits_for}" if update.waits_for else ""
            reason = f"it has been {update.phase} for {age}{waits}, and {minutes} min were expected"
            remedy = plan_progress.unrecorded_remedy(name, cluster) or look
            yield Obstacle(reason, remedy, problem, node=name)


def stalled(
    begun: Sequence[PoolUpdate],
    plan: Plan,
    pools: Sequence[Pool],
    minutes: int,
    known: Collection[str],
    cluster: Cluster,
) -> Iterator[str]:
    """Yield which nodes are at a step that has lasted many times what was expected.

    What blocks a drain and VMs that still leave explain a long one, ``drain_waits`` tells of that
    of a Machine, and ``late`` of a node that does not come back.

    ``known``: the nodes of which something else tells why they stand.
    """
    told, held = {*known}, {each.name for each in plan.nodes if each.pods.blockers}
    for pool in pools:
        if pool.obstacle is not None:
            told |= {*pool.to_do, pool.obstacle.node}
    for name, update in by_node(begun):
        steps = EMPTIED if update.kind == MACHINE_DEPLOYMENT.kind else _STEPS
        own = update.kind not in _ROLLED_OUT or update.kind in harvester_upgrades.KINDS
        if own or update.phase not in steps or name in told:
            continue
        if update.phase in EMPTIED and node_health.silence_now(name, cluster):
            continue  # how long a reboot may take counts from the silence
        drained, last = update.phase is Phase.DRAINING, leaving_vms.last_left(name, cluster)
        since = max(filter(None, (update.since, last)), default=None)
        limit = max(LONG, timedelta(minutes=_MANY * minutes))
        if update.since is None or not vm_states_times.is_older(since, limit, cluster):
            continue
        if not drained or not (name in held or leaving_vms.explain(name, cluster)):
            left = [vmi.full_name for vmi in leaving_vms.of_node(name, cluster)] if drained else []
            why = update.waits_for or (f"nothing moves {names(left)}" if left else "")
            says = f": {why}" if why else ""
            age = vm_states_times.age(update.since, cluster)
            yield (
                f"when {update.kind} {update.name} goes on with {name}: it has been {update.phase} "
                f"for {age}, and {minutes} min were expected{says}"
            )


_MANY: Final = 6
_STEPS: Final = (*EMPTIED, Phase.DRAINING)


def _not_back(name: str, over: OverdueReturn, minutes: int, cluster: Cluster) -> str:
    """Return why a node does not come back from its update: it is not known to be on its way."""
    pending = certificate_requests.of_node(name, cluster)
    runs = f". It {pending.reason}" if pending is not None else ""
    return (
        f"it has not reported for {clock.duration(over.lasts)}, and {minutes} min were expected "
        f"for its update: {over.words}{runs}"
    )


def without_late(pools: Sequence[Pool], late: Sequence[str]) -> tuple[Pool, ...]:
    """Return the pools without nodes that do not come back, and without those that wait for their
    places: no end of them is known.
    """
    return tuple(_without_late(pool, late) for pool in pools)


def _without_late(pool: Pool, late: Sequence[str]) -> Pool:
    stands = pool.obstacle.node if pool.obstacle is not None else ""
    gone = [name for name in pool.begun if name in late or name == stands]
    if not gone:
        return pool
    left = pool.capacity - len(gone)
    return replace(
        pool,
        begun=tuple(name for name in pool.begun if name not in gone),
        nodes=pool.nodes if left >= 1 else (),
        capacity=max(left, 1),
    )


def until_back(update: NodeUpdate, reboot: int, bound: str, cluster: Cluster) -> int | None:
    """Return the seconds until a node is back; None: it is still drained.

    Args:
        update: how far it is.
        reboot: the seconds that the update and the reboot of a node take.
        bound: ``low`` or ``high``.
        cluster: the cluster.
    """
    if update.phase not in EMPTIED:
        return None
    current = clock.now(cluster)
    if update.since is None or current is None or not update.exact:
        return 0 if bound == "low" else reboot
    elapsed = max(int((current - update.since).total_seconds()), 0)
    expected = max(reboot - elapsed, 0)
    return expected if bound == "low" or elapsed <= reboot else max(2 * reboot - elapsed, 0)
