"""Nodes that are cordoned or not Ready, and use up the maxUnavailable of their MachineConfigPool:
it updates no other one.

Such a pool says Updating although nothing is to be updated. Sources:
openshift/machine-config-operator: pkg/controller/node/node_controller.go#getAllCandidateMachines,
:pkg/controller/node/status.go#calculateStatus; pull requests 2758 and 4475; openshift-docs pull
request 51545.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.forecasts.upgrade.pools import leaving_machines
from virt_admit.model import machine_pools
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import names
from virt_admit.model.node_updates import config_pool_updates, cordoners, node_phases, updaters
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.model.remediation import fence_taints, maintenance

READS: Final[Reads] = union(
    pool_obstacles.READS,
    updaters.READS,
    {MACHINE_CONFIG_POOL: (), NODE: ("spec.taints", "spec.unschedulable")},
)
_USUAL: Final = timedelta(minutes=30)


def obstacle(
    pool: Object, own: Sequence[Object], away: Sequence[Object], capacity: int, cluster: Cluster
) -> Obstacle:
    """Return why a pool updates no node: those that are away leave no place for another one.

    Args:
        pool: the MachineConfigPool.
        own: its nodes.
        away: those that are cordoned or not Ready, and not because of its own update.
        capacity: how many may be unavailable.
        cluster: the cluster.
    """
    waits, which = waiting(pool, own), _which(away, capacity, cluster)
    target = config_pool_updates.target(pool, own)
    if waits and {node.name for node in away}.issuperset(waits):
        has = {node.annotations.get(config_pool_updates.CURRENT, "") for node in own} - {target}
        found = (
            f"MachineConfigPool {pool.name} does not give {names(waits)} its configuration "
            f"{target}: {which} (now at {names(sorted(has))})"
        )
    elif waits or not target:
        found = f"MachineConfigPool {pool.name} updates no other node: {which}"
    else:
        found = (
            f"the next update of MachineConfigPool {pool.name} would not begin: {which}. None is "
            "under way: all its nodes have its configuration, and it may say Updating for that "
            "node alone"
        )
    remedy = pool_obstacles.end_of_absence(pool, away, cluster)
    kept = [_maintained_by(node, cluster) for node in away]
    awaits = names(kept, 80) if all(kept) and not waits else ""
    return Obstacle(found, remedy, problem_of(ProblemCause.POOL_NODES, pool), awaits=awaits)


def _maintained_by(node: Object, cluster: Cluster) -> str:
    """Return the maintenance that keeps a node away until its administrator ends it, such as
    ``NodeMaintenance dimm``; empty: another cause, or its drain does not end."""
    cordon = cordoners.of_node(node, cluster)
    by = cordon.by if cordon is not None and not cordon.failed else ""
    is_order = by.partition(" ")[0] in {kind.kind for kind in maintenance.KINDS}
    goes_on = is_order and not pool_obstacles.blockers(node.name, cluster)
    return by if goes_on and not node_health.silence(node, cluster) else ""


def explained(
    pool: Object, own: Sequence[Object], away: Sequence[Object], capacity: int, cluster: Cluster
) -> Obstacle:
    """Return the same with the VM that keeps the drain of a node whose Machine is deleted."""
    return leaving_machines.with_cause(obstacle(pool, own, away, capacity, cluster), away, cluster)


def behind_pause(pool: Object, away: Sequence[Object], capacity: int, cluster: Cluster) -> Obstacle:
    """Return why a paused pool would update no node either once its pause has ended."""
    which = _which(away, capacity, cluster)
    return Obstacle(
        f"MachineConfigPool {pool.name} begins with no node when its pause ends: {which}",
        pool_obstacles.end_of_absence(pool, away, cluster),
        problem_of(ProblemCause.POOL_NODES, pool),
    )


def _which(away: Sequence[Object], capacity: int, cluster: Cluster) -> str:
    uses = "use up" if len(away) > 1 else "uses up"
    return (
        f"{names(node.name for node in away)}, {_state(away, cluster)}, {uses} its maxUnavailable "
        f"{capacity}"
    )


def is_unavailable(node: Object, phases: Mapping[str, NodeUpdate], cluster: Cluster) -> bool:
    """Return whether a node is cordoned or not Ready, and that does not end by itself:
    no update of it is under way, and no delay after its remediation.
    """
    under_way = not phases and config_pool_updates.is_under_way(node)
    failing = node.name in phases and phases[node.name].phase is Phase.FAILING
    waits = under_way or failing or not node_phases.is_away(node)
    return not waits and not may_return(node, cluster)


def waiting(pool: Object, own: Sequence[Object]) -> list[str]:
    """Return the nodes of a pool that do not have its configuration yet."""
    target = config_pool_updates.target(pool, own)
    current = ((node.name, node.annotations.get(config_pool_updates.CURRENT)) for node in own)
    return [name for name, present in current if target and present and present != target]


def _state(away: Sequence[Object], cluster: Cluster) -> str:
    """Return how nodes are away, since when, and whether a known updater has cordoned them."""
    cordoned = [node for node in away if node.at("spec", "unschedulable").boolean]
    if not cordoned:
        return "not Ready"
    if len(cordoned) < len(away):
        return "cordoned or not Ready"
    by_hand = all(cordoners.of_node(node, cluster) is None for node in cordoned)
    said = "cordoned by hand" if by_hand else "cordoned"
    ages = [
        clock.since(clock.stamp(node_phases.cordoned_since(node)), cluster) for node in cordoned
    ]
    known = [age for age in ages if age is not None]
    return f"{said} for {clock.duration(max(known))}" if known else said


@cached
def held(cluster: Cluster) -> Mapping[str, Obstacle | Unseen]:
    """Return for pools whose update does not go on for at least half an hour, as nodes are away,
    the reason. Unseen: what may bring such a node back could not be read.
    """
    found: dict[str, Obstacle | Unseen] = {}
    for pool, own in machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE)):
        away = [node for node in own if _stays_away(node, cluster)]
        if (
            not away
            or pool.at("spec", "paused").boolean
            or config_pool_updates.degraded(pool)
            or not waiting(pool, own)
        ):
            continue
        try:
            capacity = machine_pools.capacity(pool, len(own))
        except ValueError:
            continue
        if (
            len(away) >= capacity
            and all(_lasts(node, cluster) for node in away)
            and not any(map(config_pool_updates.is_under_way, own))
        ):
            doubts = (each for node in away for each in fence_taints.unread(node, cluster))
            found[pool.name] = next(doubts, obstacle(pool, own, away, capacity, cluster))
    return found


def may_return(node: Object, cluster: Cluster) -> bool:
    """Return whether a fenced node comes back by itself, or may, or one may go with its Machine."""
    return bool(fence_taints.kept(node, cluster) or _doubt(node, cluster))


def doubts(cluster: Cluster) -> Iterator[str]:
    """Yield what may end the absence of the nodes that are away, and could not be read."""
    away = filter(node_phases.is_away, cluster.known(NODE))
    yield from filter(None, (_doubt(node, cluster) for node in away))


def open_doubts(begun: Collection[str], cluster: Cluster) -> Iterator[str]:
    """Yield which drains that have begun may not end, as their nodes were uncordoned."""
    for drain in config_pool_updates.open_drains(cluster).values():
        if drain.node in begun and not drain.again:
            yield f"whether the drain of {drain.node} ends: {drain.note}"


def _doubt(node: Object, cluster: Cluster) -> str:
    if (fenced := fence_taints.doubt(node, cluster)) or config_pool_updates.is_under_way(node):
        return fenced
    what = leaving_machines.unread(node, cluster)
    return f"whether {node.name} goes with its Machine: {what}" if what else ""


def _stays_away(node: Object, cluster: Cluster) -> bool:
    """Return whether a node takes a place of the pool until something is done: one whose Machine is
    deleted goes itself, unless that does not end. One that a NodeHealthCheck keeps comes back.
    """
    if not node_phases.is_away(node) or config_pool_updates.is_under_way(node):
        return False
    if fence_taints.kept(node, cluster):
        return False
    leaves = cordoners.machine_in_deletion(node, cluster)
    return not leaves or bool(cordoners.stuck_removal(node, cluster))


def _lasts(node: Object, cluster: Cluster) -> bool:
    since = node_phases.cordoned_since(node) or node_phases.unready_since(node)
    return clock.has_lasted(clock.stamp(since), _USUAL, cluster)
