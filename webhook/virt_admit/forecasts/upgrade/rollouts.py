"""Who updates the nodes, in which order, and how many at the same time.

Sources: openshift/machine-config-operator pkg/controller/node/node_controller.go#getAllCandidateMachines,
#maxUnavailable, #sortNodeList, #getPrimaryPoolForNode, pkg/controller/common/layered_node_state.go#CheckNodeReady;
kubernetes-sigs/cluster-api core/reconcilers/machinedeployment/mdutil/util.go#ResolveFenceposts.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.remediation.inactive_reasons import CURRENT_CONFIG, DESIRED_CONFIG
from virt_admit.model import machine_pools
from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.int_or_percent import LimitKind, parse_int_or_percent
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_CONFIG_POOL, MACHINE_DEPLOYMENT, NODE, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names
from virt_admit.model.problems import ProblemCause, ProblemId, problem_of

READS: Final[Reads] = {
    MACHINE_CONFIG_POOL: (),
    MACHINE_DEPLOYMENT: (),
    CAPI_MACHINE: ("metadata.labels", "status.nodeRef"),
    NODE: (f"metadata.annotations.{CURRENT_CONFIG}", f"metadata.annotations.{DESIRED_CONFIG}"),
}

ZONE: Final = "topology.kubernetes.io/zone"


class Driver(enum.StrEnum):
    """Who decides the order."""

    MACHINE_CONFIG = "machineconfig"
    CLUSTER_API = "cluster-api"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a pool is not updated at all."""

    reason: str
    remedy: str
    problem: ProblemId | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are updated together, in order, at most ``capacity`` at a time."""

    name: str
    nodes: tuple[str, ...]
    capacity: int
    obstacle: Obstacle | None = None


_READ_BY: Final[Mapping[Driver, tuple[Kind, ...]]] = {
    Driver.MACHINE_CONFIG: (MACHINE_CONFIG_POOL,),
    Driver.CLUSTER_API: (MACHINE_DEPLOYMENT, CAPI_MACHINE),
    Driver.PLAIN: (),
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
    return Driver.CLUSTER_API if cluster.known(MACHINE_DEPLOYMENT) else Driver.PLAIN


def unread(cluster: Cluster, driver: Driver | None) -> Iterator[Unseen]:
    """Yield the kinds of which more objects may exist, which may change the order or stop it.

    ``driver``: the one that the administrator named; None: that of ``default_driver``, which then rests also on the
    kinds that decide before it.
    """
    used = driver or default_driver(cluster)
    before = _DECIDED_BY[used] if driver is None else ()
    for kind in dict.fromkeys((*before, *_READ_BY[used])):
        yield from more_may_exist(cluster, kind)


def pools(driver: Driver, cluster: Cluster, max_unavailable: str | None, load: Sequence[str]) -> tuple[Pool, ...]:
    """Return the pools of a cluster.

    Args:
        driver: who decides.
        cluster: the cluster.
        max_unavailable: a number or a percentage for each pool instead of the configured one.
        load: the names of the nodes, those with the least to move first.

    Raises:
        Unseen: no node can be read.
        ValueError: ``max_unavailable`` is not a number or a percentage.
    """
    every = nodes.every(cluster)
    match driver:
        case Driver.MACHINE_CONFIG:
            return tuple(_machine_config(every, cluster, max_unavailable))
        case Driver.CLUSTER_API:
            return tuple(_cluster_api(every, cluster, max_unavailable))
        case Driver.PLAIN:
            return (Pool("nodes", tuple(load), _given(max_unavailable or "1", len(load))),)


def _capacity(limit: object, total: int, form: LimitKind = LimitKind.CLUSTER_API) -> int:
    """Return how many nodes may be unavailable: a percentage is rounded down, and at least one."""
    parsed = parse_int_or_percent(limit, form)
    number = total * parsed.number // 100 if parsed.percent else parsed.number
    return max(1, number)


def _given(text: str, total: int) -> int:
    """Return the value of ``--max-unavailable``, whose numbers are text."""
    return _capacity(text, total, LimitKind.MACHINE_API)


# --- OpenShift ---------------------------------------------------------------------------------------------------


def _machine_config(every: Sequence[Object], cluster: Cluster, max_unavailable: str | None) -> Iterator[Pool]:
    for pool, own in machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), every):
        if pool.at("spec", "nodeSelector").is_map:
            yield _machine_config_pool(pool, sorted(own, key=_zone_then_age), max_unavailable)


def _machine_config_pool(pool: Object, own: Sequence[Object], max_unavailable: str | None) -> Pool:
    """Return a pool. Nodes that are not available use up its capacity, and the operator does not update them."""
    limit = pool.at("spec", "maxUnavailable").value
    away = [node.name for node in own if _is_unavailable(node)]
    obstacle = _pool_obstacle(pool)
    capacity = 1
    try:
        capacity = _capacity(1 if limit is None else limit, len(own))
    except ValueError:
        obstacle = obstacle or Obstacle(
            f"maxUnavailable of MachineConfigPool {pool.name} is not valid, so its nodes are not updated",
            typed("Set a number or a percentage", about("edit", pool, MACHINE_CONFIG_POOL)),
            problem_of(ProblemCause.POOL_INVALID, pool),
        )
    if max_unavailable is not None:
        capacity = _given(max_unavailable, len(own))
    if away:
        obstacle = obstacle or Obstacle(
            f"MachineConfigPool {pool.name} does not update nodes that are cordoned or not Ready: {names(away)}",
            f"Uncordon or repair them: {shlex.join(('kubectl', 'uncordon', *away))}",
            problem_of(ProblemCause.POOL_NODES, pool),
        )
    return Pool(f"MachineConfigPool {pool.name}", tuple(map(_name, own)), capacity, obstacle)


def _is_unavailable(node: Object) -> bool:
    """Return whether a node is cordoned or not Ready, and no update of it is under way that would end that."""
    if node.annotations.get(CURRENT_CONFIG) != node.annotations.get(DESIRED_CONFIG):
        return False
    ready = node.condition("Ready")["status"].text
    return bool(node.at("spec", "unschedulable").boolean) or ready in ("False", "Unknown")


def _zone_then_age(node: Object) -> tuple[bool, str, str, str]:
    """Return the key of #sortNodeList: nodes without a zone are the last; names make it the same for each run."""
    return ZONE not in node.labels, node.labels.get(ZONE, ""), node.metadata["creationTimestamp"].text or "", node.name


def _name(node: Object) -> str:
    return node.name


def _pool_obstacle(pool: Object) -> Obstacle | None:
    if pool.at("spec", "paused").boolean:
        paused = problem_of(ProblemCause.POOL_PAUSED, pool)
        return Obstacle(f"MachineConfigPool {pool.name} is paused", _unpause(pool, MACHINE_CONFIG_POOL), paused)
    degraded = pool.condition("Degraded")
    if degraded["status"].text == "True":
        why = degraded["message"].text or degraded["reason"].text or "see its conditions"
        return Obstacle(
            f"MachineConfigPool {pool.name} is degraded: {why}",
            typed("Repair the nodes that its status names", about("describe", pool, MACHINE_CONFIG_POOL)),
            problem_of(ProblemCause.POOL_DEGRADED, pool),
        )
    return None


def _unpause(pool: Object, kind: Kind) -> str:
    command = merge_patch(kind, pool.name, pool.namespace, {"spec": {"paused": False}})
    return f"Set spec.paused to false, which starts its roll-out at once: {command}"


# --- Cluster API -------------------------------------------------------------------------------------------------


def _cluster_api(every: Sequence[Object], cluster: Cluster, max_unavailable: str | None) -> Iterator[Pool]:
    by_deployment = machine_pools.of_deployments(cluster)
    known = {node.name for node in every}
    for deployment in sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda found: found.full_name):
        own = tuple(name for name in by_deployment.get(deployment.name, ()) if name in known)
        rolling = _rolling_update(deployment)
        surge, unavailable = rolling["maxSurge"].value, rolling["maxUnavailable"].value
        at_once = _surge(surge, unavailable, len(own)) if max_unavailable is None else _given(max_unavailable, len(own))
        paused = deployment.at("spec", "paused").boolean
        obstacle = Obstacle(
            f"MachineDeployment {deployment.name} is paused",
            _unpause(deployment, MACHINE_DEPLOYMENT),
            problem_of(ProblemCause.POOL_PAUSED, deployment),
        )
        yield Pool(f"MachineDeployment {deployment.name}", own, at_once, obstacle if paused else None)


def _rolling_update(deployment: Object) -> Field:
    """Return the block of both API versions: ``spec.rollout.strategy`` in v1beta2, ``spec.strategy`` before."""
    for path in (("spec", "rollout", "strategy", "rollingUpdate"), ("spec", "strategy", "rollingUpdate")):
        if deployment.at(*path).is_map:
            return deployment.at(*path)
    return deployment.at("spec", "strategy", "rollingUpdate")


def _surge(surge: object, unavailable: object, total: int) -> int:
    """Return how many nodes change at once: those made for the surge, rounded up, and those that may be missing."""
    more, fewer = _share(surge, 1, total, up=True), _share(unavailable, 0, total, up=False)
    return max(1, more + min(fewer, total))


def _share(value: object, default: int, total: int, *, up: bool) -> int:
    try:
        parsed = parse_int_or_percent(default if value is None else value, LimitKind.CLUSTER_API)
    except ValueError:
        return default
    if not parsed.percent:
        return parsed.number
    return -(-total * parsed.number // 100) if up else total * parsed.number // 100
