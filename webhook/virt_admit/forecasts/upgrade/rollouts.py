"""Who updates the nodes, in which order, and how many at the same time.

Sources: openshift/machine-config-operator
pkg/controller/node/node_controller.go#getAllCandidateMachines, #maxUnavailable, #sortNodeList,
#getPrimaryPoolForNode, pkg/controller/common/layered_node_state.go#CheckNodeReady;
kubernetes-sigs/cluster-api core/reconcilers/machinedeployment/mdutil/util.go#ResolveFenceposts;
rancher/rancher pkg/capr/planner/planner.go#fullReconcile (etcd one by one, control plane, workers).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain.budgets import mutual_drains
from virt_admit.forecasts.placement.components.controllers import replaced_providers
from virt_admit.forecasts.remediation import hand_reboots
from virt_admit.forecasts.upgrade import harvester_waits, pool_obstacles
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.forecasts.upgrade.pools import (
    away_nodes,
    leaving_machines,
    unpooled_nodes,
    updater_pods,
    updater_webhooks,
    upgrade_refusals,
    waiting_machines,
)
from virt_admit.model import machine_nodes, machine_pools
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.int_or_percent import LimitKind
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    CAPI_MHC,
    CLUSTER_VERSION,
    MACHINE_CONFIG_POOL,
    MACHINE_DEPLOYMENT,
    MACHINE_DRAIN_RULE,
    NODE,
    PLAN,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates import (
    cluster_updates,
    config_pool_updates,
    daemon_errors,
    node_phases,
    plan_progress,
    sriov_drains,
    talos_upgrades,
    updaters,
)
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, NodeUpdate, Phase, PoolUpdate
from virt_admit.model.node_updates.operators import paused_pools, poolless_nodes
from virt_admit.model.node_updates.rancher import cpu_manager_jobs, planner_order
from virt_admit.model.problems import ProblemCause, problem_of

READS: Final = union(
    updaters.READS,
    cluster_updates.READS,
    pool_obstacles.READS,
    updater_webhooks.READS,
    waiting_machines.READS,
    leaving_machines.READS,
    harvester_waits.READS,
    upgrade_refusals.READS,
    machine_nodes.POOL_READS,
    planner_order.READS,
    cpu_manager_jobs.READS,
)
"""The fields that say who updates the nodes, in which order, and how far that is."""


class Driver(enum.StrEnum):
    """Who decides the order."""

    MACHINE_CONFIG = "machineconfig"
    CLUSTER_API = "cluster-api"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are updated together, in order, at most ``capacity`` at a time."""

    name: str
    nodes: tuple[str, ...]
    """Those whose update has not begun."""
    capacity: int
    obstacle: Obstacle | None = None
    behind: Obstacle | None = None
    """What holds it once a pause, which is its obstacle, has ended."""
    begun: tuple[str, ...] = ()
    """Nodes whose update is under way; each of them has one of the places."""
    failing: tuple[Obstacle, ...] = ()
    """Nodes whose update has failed, each with the reason."""
    left_out: tuple[str, ...] = ()
    """Nodes that are cordoned or not Ready: each takes a place,
    and is updated only after that ends.
    """
    limit: str = "maxUnavailable"
    """What sets ``capacity``; empty: not known, or nothing can be set."""
    alone: frozenset[str] = frozenset()
    """Nodes during whose update no other one of the pool is updated: those of the control plane."""

    @property
    def to_do(self) -> tuple[str, ...]:
        """The nodes whose update has not ended."""
        return (*self.begun, *self.nodes)


_READ_BY: Final[Mapping[Driver, tuple[Kind, ...]]] = {
    Driver.MACHINE_CONFIG: (MACHINE_CONFIG_POOL, CLUSTER_VERSION),
    Driver.CLUSTER_API: (MACHINE_DEPLOYMENT, CAPI_MACHINE, CAPI_MHC, MACHINE_DRAIN_RULE),
    Driver.PLAIN: (PLAN,),
}
"""The kinds that each driver reads, besides Nodes."""
_DECIDED_BY: Final[Mapping[Driver, tuple[Kind, ...]]] = {
    Driver.MACHINE_CONFIG: (),
    Driver.CLUSTER_API: (MACHINE_CONFIG_POOL,),
    Driver.PLAIN: (MACHINE_CONFIG_POOL, MACHINE_DEPLOYMENT),
}
"""The kinds of which no object may exist where a driver is the default."""


def default_driver(cluster: Cluster) -> Driver:
    """Return who probably updates this cluster, by the kinds of which objects are known."""
    if cluster.known(MACHINE_CONFIG_POOL):
        return Driver.MACHINE_CONFIG
    return Driver.CLUSTER_API if machine_pools.deployed_here(cluster) else Driver.PLAIN


def unread(
    cluster: Cluster, driver: Driver | None, begun: Sequence[PoolUpdate] = ()
) -> Iterator[Unseen]:
    """Yield the kinds of which more objects may exist, which may change the order or stop it.

    Args:
        cluster: the cluster.
        driver: the administrator's; None: ``default_driver``, and the kinds that decide before it.
        begun: how far a roll-out is that is under way.
    """
    used = driver or default_driver(cluster)
    before = _DECIDED_BY[used] if driver is None else ()
    for kind in dict.fromkeys((*before, *_READ_BY[used])):
        yield from more_may_exist(cluster, kind)
    if any(pool.revisions_unknown for pool in begun):
        yield from more_may_exist(cluster, CAPI_MACHINE_SET)
    yield from updater_pods.unread(used, cluster)
    if used is Driver.PLAIN:
        yield from harvester_waits.unread([pool.name for pool in begun], cluster)
        yield from upgrade_refusals.unread(cluster)
        yield from pool_obstacles.unread_lock(cluster)
        yield from talos_upgrades.unread(cluster)


def updates(driver: Driver, cluster: Cluster) -> tuple[PoolUpdate, ...]:
    """Return how far the roll-out of each pool is, by the objects of the driver.

    Empty: they do not tell.
    """
    match driver:
        case Driver.MACHINE_CONFIG:
            return paused_pools.going(updaters.config_pools(cluster), cluster)
        case Driver.CLUSTER_API:
            return updaters.machine_deployments(cluster)
        case Driver.PLAIN:
            own = updaters.of_harvester(cluster) or updaters.of_plans(cluster)
            return own or tuple(_maintained(cluster))


def _maintained(cluster: Cluster) -> Iterator[PoolUpdate]:
    """Yield the nodes with those that are in maintenance, if there are any.

    A maintenance that failed keeps none.
    """
    waiting = {node.name: NodeUpdate("", "", Phase.WAITING) for node in cluster.known(NODE)}
    found = {
        node: update
        for node, update in updaters.maintenances(cluster).items()
        if update.phase is not Phase.FAILING and node in waiting
    }
    if found := hand_reboots.phases(cluster) | found:
        yield PoolUpdate("", "nodes", waiting | updaters.left_alone(found, cluster) | found)


def in_flight(driver: Driver, cluster: Cluster) -> tuple[PoolUpdate, ...]:
    """Return how far each pool is while a roll-out is under way; empty: none is."""
    found = updates(driver, cluster)
    return found if any(pool.in_flight for pool in found) else ()


def pools(
    driver: Driver,
    cluster: Cluster,
    max_unavailable: str | None,
    load: Sequence[str],
    begun: Sequence[PoolUpdate] = (),
) -> tuple[Pool, ...]:
    """Return the pools of a cluster.

    Args:
        driver, cluster: who decides in it.
        max_unavailable: a number or a percentage for each pool instead of the configured one.
        load: the names of the nodes, those with the least to move first. Where no pool decides, the
            control plane comes before them.
        begun: how far a roll-out is that is under way; empty: all nodes are still to be updated.

    Raises:
        Unseen: no node can be read.
        ValueError: ``max_unavailable`` is not a number or a percentage.
    """
    nodes.every(cluster)  # raises if none can be read
    every = cluster.known(NODE)
    phases = dict(node_phases.by_node(begun))
    match driver:
        case Driver.MACHINE_CONFIG:
            found = tuple(_machine_config(every, cluster, max_unavailable, phases))
        case Driver.CLUSTER_API:
            found = tuple(_cluster_api(every, cluster, max_unavailable, phases))
        case Driver.PLAIN:
            found = tuple(_plain(every, cluster, max_unavailable, load, begun, phases))
    down = updater_webhooks.controller(driver, cluster)
    found = tuple(replace(each, obstacle=each.obstacle or down) for each in found)
    return tuple(_keeping_quorum(pool, coming_back(found), cluster) for pool in found)


def _plain(
    every: Sequence[Object],
    cluster: Cluster,
    max_unavailable: str | None,
    load: Sequence[str],
    begun: Sequence[PoolUpdate],
    phases: Mapping[str, NodeUpdate],
) -> Iterator[Pool]:
    known = {node.name: node for node in every}
    servers = frozenset(node.name for node in every if nodes.is_server(node))
    turn = {name for name, each in phases.items() if each.waits_for}
    order, busy = planner_order.ordered(load, cluster), cpu_manager_jobs.busy(cluster)
    ranks = {each: (each not in servers, each in busy, each not in turn) for each in order}
    own = tuple(sorted(order, key=ranks.__getitem__))
    at_once = plan_progress.at_once(cluster)
    capacity = _given(max_unavailable or str(at_once.nodes), len(own))
    limit = f"concurrency of Plan {at_once.plan}" if at_once.plan else "nodes at the same time"
    if harvester_waits.is_harvester(cluster) or (begun and not at_once.plan):
        limit = ""  # Harvester takes one at a time, and another updater has a setting of its own
    pool = Pool("nodes", own, capacity, limit=limit, alone=servers)
    found = _without_silent(_continued(pool, phases, known), known, cluster)
    held = upgrade_refusals.holds(begun, found.failing, cluster) if found.to_do else ()
    yield replace(found, obstacle=next(iter(held), None))
    yield from (Pool("Upgrade", (), 1, each) for each in held[1:])


def _without_silent(pool: Pool, known: Mapping[str, Object], cluster: Cluster) -> Pool:
    """Return a pool without the nodes that nothing can update, as they do not report."""
    failing = tuple(pool_obstacles.silent([known[name] for name in pool.nodes], cluster))
    left = tuple(name for name in pool.nodes if all(each.node != name for each in failing))
    return replace(pool, nodes=left, failing=(*pool.failing, *failing))


def coming_back(pools: Iterable[Pool]) -> frozenset[str]:
    """Return the nodes whose update is under way, so that others wait for them."""
    return frozenset(node for pool in pools for node in pool.begun)


def doubts(driver: Driver, pools: Sequence[Pool], cluster: Cluster) -> Iterator[str]:
    """Yield what may stop pools that nothing certainly stops."""
    free = [pool for pool in pools if pool.obstacle is None]
    waiting = [node for pool in free for node in pool.nodes]
    begun = [node for pool in free for node in pool.begun]
    if driver is Driver.MACHINE_CONFIG:
        yield from away_nodes.open_doubts(begun, cluster)
    if driver is Driver.MACHINE_CONFIG and waiting:
        own = pool_obstacles.release_doubt(cluster)
        yield from filter(None, (own, updater_pods.doubt(cluster), *away_nodes.doubts(cluster)))
    yield from pool_obstacles.quorum_doubts(waiting, coming_back(pools), cluster)
    yield from pool_obstacles.silence_doubts(waiting * (driver is Driver.PLAIN), begun, cluster)
    if driver is Driver.PLAIN:
        yield from pool_obstacles.order_doubts(cluster)
        yield from upgrade_refusals.doubts(cluster)
        yield from pool_obstacles.lock_doubts(cluster)
    if driver is Driver.CLUSTER_API:
        yield from replaced_providers.doubts(cluster)
        yield from waiting_machines.machine_doubts(frozenset((*waiting, *begun)), cluster)


def _keeping_quorum(pool: Pool, back: Collection[str], cluster: Cluster) -> Pool:
    stopped = pool_obstacles.without_quorum(pool.nodes, back, cluster)
    return replace(pool, obstacle=pool.obstacle or next(stopped, None))


def _continued(pool: Pool, phases: Mapping[str, NodeUpdate], known: Mapping[str, Object]) -> Pool:
    """Return a pool without the nodes that are done, and with those whose update is under way."""
    of = {name: phases[name].phase if name in phases else Phase.WAITING for name in pool.nodes}
    ill = [name for name in pool.nodes if of[name] is Phase.FAILING and name in known]
    return replace(
        pool,
        nodes=tuple(
            name
            for phase in (Phase.NEXT, Phase.WAITING)
            for name in pool.nodes
            if of[name] is phase
        ),
        begun=tuple(
            name for name in pool.nodes if of[name] in IN_FLIGHT and of[name] is not Phase.FAILING
        ),
        failing=tuple(_failure(known[name], phases[name]) for name in ill),
    )


def _failure(node: Object, update: NodeUpdate) -> Obstacle:
    words = f": {update.waits_for}" if update.waits_for else ""
    return Obstacle(
        f"its update has failed{words}",
        daemon_errors.of_update(node, update),
        problem_of(ProblemCause.NODE_UPDATE_FAILED, node),
        node=node.name,
    )


def _given(text: str, total: int) -> int:
    """Return the value of ``--max-unavailable``, whose numbers are text."""
    return machine_pools.share(text, total, LimitKind.MACHINE_API)


# --- OpenShift ------------------------------------------------------------------------------------


def _machine_config(
    every: Sequence[Object],
    cluster: Cluster,
    max_unavailable: str | None,
    phases: Mapping[str, NodeUpdate],
) -> Iterator[Pool]:
    known = cluster.known(MACHINE_CONFIG_POOL)
    held = pool_obstacles.of_release(cluster_updates.release(cluster), cluster)
    if held is not None:  # once, also where each pool has an obstacle of its own
        yield Pool("ClusterVersion", (), 1, held)
    for pool, own in machine_pools.members(known, leaving_machines.staying(every, cluster)):
        if pool.at("spec", "nodeSelector").is_map and not paused_pools.is_waiting(pool, cluster):
            nodes_in_order = sorted(own, key=machine_pools.zone_then_age)
            found = _machine_config_pool(pool, nodes_in_order, max_unavailable, phases, cluster)
            yield replace(found, obstacle=found.obstacle or held) if found.to_do else found
            if found.behind is not None:
                yield Pool(found.name, (), 1, found.behind)
    for left in poolless_nodes.of_cluster(cluster).values():
        yield Pool("no MachineConfigPool", (left.node.name,), 1, unpooled_nodes.left_out(left))


def rests_on(driver: Driver, cluster: Cluster) -> Iterator[str]:
    """Yield what the update of the cluster rests on, and which nodes belong to another pool than
    one that selects them.
    """
    if driver is Driver.MACHINE_CONFIG:
        yield from cluster_updates.release(cluster).notes
        found = machine_pools.overlaps(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE))
        yield from (overlap.effect for overlap in found)
    else:
        yield from unpooled_nodes.of_machine_pools(cluster, counted=driver is Driver.PLAIN)


def _machine_config_pool(
    pool: Object,
    own: Sequence[Object],
    max_unavailable: str | None,
    phases: Mapping[str, NodeUpdate],
    cluster: Cluster,
) -> Pool:
    """Return a pool. Nodes that are not available take up its places, and are not updated."""
    obstacle, capacity = _pool_obstacle(pool, own, cluster), 1
    try:
        capacity = machine_pools.capacity(pool, len(own))
    except ValueError:
        obstacle = obstacle or Obstacle(
            f"maxUnavailable of MachineConfigPool {pool.name} is not valid, so its nodes are not "
            "updated",
            typed("Set a number or a percentage", about("edit", pool, MACHINE_CONFIG_POOL)),
            problem_of(ProblemCause.POOL_INVALID, pool),
        )
    if max_unavailable is not None:
        capacity = _given(max_unavailable, len(own))
    every = Pool(
        f"MachineConfigPool {pool.name}", tuple(node.name for node in own), capacity, obstacle
    )
    found = _continued(every, phases, {node.name: node for node in own})
    away = [
        node.name
        for node in own
        if node.name not in found.begun and away_nodes.is_unavailable(node, phases, cluster)
    ]
    if not found.to_do and not found.failing and not config_pool_updates.degraded(pool):
        return replace(found, obstacle=None)  # nothing is left that it could stop
    left = capacity - len(away) - len(found.failing)
    waiting = tuple(name for name in found.nodes if name not in away)
    if left >= 1:
        not_done = tuple(name for name in found.nodes if name in away)
        return replace(found, nodes=waiting, capacity=left, left_out=not_done)
    if obstacle is not None and found.failing and waiting and not pool.at("spec", "paused").boolean:
        which = (
            f"{names(each.node for each in found.failing)}, which uses up its maxUnavailable "
            f"{capacity}"
        )
        come = "comes" if len(waiting) == 1 else "come"
        reason = f"{obstacle.reason}. {names(waiting, 60)} {come} after {which}"
        obstacle = replace(obstacle, reason=reason)
    if found.begun and any(mutual_drains.of_node(name, cluster) for name in away):
        return replace(found, nodes=(), obstacle=obstacle)  # what is drained names that cause
    if away and found.nodes:
        absent = [node for node in own if node.name in away]
        if obstacle is not None and pool.at("spec", "paused").boolean and not obstacle.drained:
            unpause = pool_obstacles.unpause(pool, MACHINE_CONFIG_POOL, away)
            behind = away_nodes.behind_pause(pool, absent, capacity, cluster)
            return replace(found, obstacle=replace(obstacle, remedy=unpause), behind=behind)
        obstacle = obstacle or away_nodes.explained(pool, own, absent, capacity, cluster)
    return replace(found, obstacle=obstacle)


def _pool_obstacle(pool: Object, own: Sequence[Object], cluster: Cluster) -> Obstacle | None:
    if pool.at("spec", "paused").boolean:
        paused, reason = problem_of(ProblemCause.POOL_PAUSED, pool), sriov_drains.words(pool, own)
        if sriov_drains.has_paused(pool, own):
            return Obstacle(reason, sriov_drains.remedy(own), paused, sriov_drains.drained(own))
        reason += paused_pools.since(pool, cluster) + paused_pools.effect(pool, cluster)
        return Obstacle(reason, pool_obstacles.unpause(pool, MACHINE_CONFIG_POOL), paused)
    if said := config_pool_updates.degraded(pool):
        see = typed(
            "Repair the nodes that its status names", about("describe", pool, MACHINE_CONFIG_POOL)
        )
        return Obstacle(
            f"MachineConfigPool {pool.name} is degraded: {cut_middle(said, _LONGEST)}",
            daemon_errors.of_pool(pool, own) or see,
            problem_of(ProblemCause.POOL_DEGRADED, pool),
        )
    return updater_pods.daemon(own, cluster)


_LONGEST: Final = 300  # the operator names the node, and the error of its daemon comes last


# --- Cluster API ----------------------------------------------------------------------------------


def _cluster_api(
    every: Sequence[Object],
    cluster: Cluster,
    max_unavailable: str | None,
    phases: Mapping[str, NodeUpdate],
) -> Iterator[Pool]:
    by_deployment, leaving = machine_pools.of_deployments(cluster), leaving_machines.nodes(cluster)
    known = {node.name: node for node in every if node.name not in leaving}
    for deployment in sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda found: found.full_name):
        own = tuple(
            name
            for name in by_deployment.get((deployment.namespace, deployment.name), ())
            if name in known
        )
        configured = machine_pools.at_once(deployment, len(own))
        at_once = configured if max_unavailable is None else _given(max_unavailable, len(own))
        pool = Pool(
            f"MachineDeployment {deployment.full_name}",
            own,
            at_once,
            limit="maxSurge + maxUnavailable",
        )
        pool = _continued(pool, phases, known)
        held = (
            *pool_obstacles.paused(deployment, cluster),
            *waiting_machines.without_machine(deployment, cluster),
            *updater_webhooks.of_deployment(deployment, cluster),
        )
        left = held if pool.to_do or pool.failing else waiting_machines.stalled(deployment, cluster)
        yield replace(pool, obstacle=next(iter(left), None))
