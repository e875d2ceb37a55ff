"""Who updates the nodes, in which order, and how many at the same time.

Sources: openshift/machine-config-operator pkg/controller/node/node_controller.go#getAllCandidateMachines,
#maxUnavailable, pkg/controller/common (nodes by zone, then by age);
kubernetes-sigs/cluster-api internal/controllers/machinedeployment.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.model import nodes, selectors
from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import CAPI_MACHINE, MACHINE_CONFIG_POOL, MACHINE_DEPLOYMENT
from virt_admit.model.objects import Field, Object
from virt_admit.model.reads import Reads
from virt_admit.model.units import LimitKind, parse_int_or_percent

READS: Final[Reads] = {
    MACHINE_CONFIG_POOL: (),
    MACHINE_DEPLOYMENT: (),
    CAPI_MACHINE: ("metadata.labels", "status.nodeRef"),
}

ZONE: Final = "topology.kubernetes.io/zone"
_DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"


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


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are updated together, in order, at most ``capacity`` at a time."""

    name: str
    nodes: tuple[str, ...]
    capacity: int
    obstacle: Obstacle | None = None


def default_driver(cluster: Cluster) -> Driver:
    """Return who probably updates this cluster, by the kinds of which objects are known."""
    if cluster.known(MACHINE_CONFIG_POOL):
        return Driver.MACHINE_CONFIG
    return Driver.CLUSTER_API if cluster.known(MACHINE_DEPLOYMENT) else Driver.PLAIN


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
            return (Pool("nodes", tuple(load), _capacity(max_unavailable or "1", len(load))),)


def _capacity(limit: object, total: int) -> int:
    """Return how many nodes may be unavailable: a percentage is rounded down, and at least one."""
    parsed = parse_int_or_percent(limit, LimitKind.MACHINE_API)
    number = total * parsed.number // 100 if parsed.percent else parsed.number
    return max(1, number)


# --- OpenShift ---------------------------------------------------------------------------------------------------


def _machine_config(every: Sequence[Object], cluster: Cluster, max_unavailable: str | None) -> Iterator[Pool]:
    found = sorted(cluster.known(MACHINE_CONFIG_POOL), key=lambda pool: pool.name)
    taken: set[str] = set()
    # a node in a custom pool also has the labels of the worker pool, and the custom pool counts
    for pool in sorted(found, key=lambda pool: (pool.name in ("worker",), pool.name)):
        selector = pool.at("spec", "nodeSelector")
        if not selector.is_map:
            continue
        parsed = selectors.parse(selector.value)
        own = [node for node in every if node.name not in taken and parsed.matches(node.labels)]
        taken |= {node.name for node in own}
        limit = max_unavailable or pool.at("spec", "maxUnavailable").value
        ordered = sorted(own, key=_zone_then_age)
        try:
            capacity = _capacity(1 if limit is None else limit, len(own))
        except ValueError:
            if max_unavailable:
                raise
            capacity = 1  # the operator's default where the field is not valid
        yield Pool(f"MachineConfigPool {pool.name}", tuple(map(_name, ordered)), capacity, _pool_obstacle(pool))


def _zone_then_age(node: Object) -> tuple[str, str, str]:
    return node.labels.get(ZONE, ""), node.metadata["creationTimestamp"].text or "", node.name


def _name(node: Object) -> str:
    return node.name


def _pool_obstacle(pool: Object) -> Obstacle | None:
    if pool.at("spec", "paused").boolean:
        return Obstacle(f"MachineConfigPool {pool.name} is paused", "Set spec.paused to false.")
    degraded = pool.condition("Degraded")
    if degraded["status"].text == "True":
        why = degraded["message"].text or degraded["reason"].text or "see its conditions"
        return Obstacle(f"MachineConfigPool {pool.name} is degraded: {why}", "Repair the nodes that its status names.")
    return None


# --- Cluster API -------------------------------------------------------------------------------------------------


def _cluster_api(every: Sequence[Object], cluster: Cluster, max_unavailable: str | None) -> Iterator[Pool]:
    by_deployment: dict[str, list[str]] = {}
    for machine in sorted(cluster.known(CAPI_MACHINE), key=lambda machine: machine.name):
        node = machine.at("status", "nodeRef", "name").text
        if node:
            by_deployment.setdefault(machine.labels.get(_DEPLOYMENT, ""), []).append(node)
    known = {node.name for node in every}
    for deployment in sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda found: found.full_name):
        own = tuple(name for name in by_deployment.get(deployment.name, ()) if name in known)
        rolling = _rolling_update(deployment)
        surge, unavailable = rolling["maxSurge"].value, rolling["maxUnavailable"].value
        given = max_unavailable is not None
        at_once = _capacity(max_unavailable, len(own)) if given else _surge(surge, unavailable, len(own))
        paused = deployment.at("spec", "paused").boolean
        obstacle = Obstacle(f"MachineDeployment {deployment.name} is paused", "Set spec.paused to false.")
        yield Pool(f"MachineDeployment {deployment.name}", own, at_once, obstacle if paused else None)


def _rolling_update(deployment: Object) -> Field:
    """Return the block of both API versions: ``spec.rollout.strategy`` in v1beta2, ``spec.strategy`` before."""
    for path in (("spec", "rollout", "strategy", "rollingUpdate"), ("spec", "strategy", "rollingUpdate")):
        if deployment.at(*path).is_map:
            return deployment.at(*path)
    return deployment.at("spec", "strategy", "rollingUpdate")


def _surge(surge: object, unavailable: object, total: int) -> int:
    """Return how many nodes change at once: new ones are made for the surge, and so many old ones may be missing."""
    number = 0
    for value, default in ((surge, 1), (unavailable, 0)):
        try:
            parsed = parse_int_or_percent(default if value is None else value, LimitKind.MACHINE_API)
        except ValueError:
            parsed = parse_int_or_percent(default, LimitKind.MACHINE_API)
        number += -(-total * parsed.number // 100) if parsed.percent else parsed.number
    return max(1, number)
