"""Which object updates each node now, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    DAEMON_SET,
    HARVESTER_UPGRADE,
    MACHINE_CONFIG_POOL,
    MACHINE_DEPLOYMENT,
    NM,
    NM_KUBEVIRT,
    NODE,
    PLAN,
    UPGRADE_PLAN,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.node_updates import (
    config_pool_updates,
    harvester_upgrades,
    kured,
    machine_rollouts,
    maintenance_updates,
    plan_progress,
    sriov_drains,
)
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, NodeUpdate, Phase, PoolUpdate

READS: Final = union(
    config_pool_updates.READS,
    machine_rollouts.READS,
    maintenance_updates.READS,
    harvester_upgrades.READS,
    plan_progress.READS,
    sriov_drains.READS,
    kured.READS,
)
"""The fields that say what updates a node."""


@cached
def of_nodes(cluster: Cluster) -> Mapping[str, NodeUpdate]:
    """Return what updates each node, for the nodes of a roll-out or a maintenance that has not
    ended.
    """
    found: dict[str, NodeUpdate] = {}
    for pool in (*config_pools(cluster), *machine_deployments(cluster), *of_harvester(cluster)):
        found |= {
            node: update
            for node, update in pool.nodes.items()
            if pool.in_flight or update.phase in IN_FLIGHT
        }
    for node, update in maintenances(cluster).items():
        if node not in found or found[node].phase not in IN_FLIGHT:
            found[node] = update
    return found


def unread(node: Object, cluster: Cluster) -> str:
    """Return what could not be read, so that a node may be under an update that is not known;
    empty: all was read.

    Only OpenShift and Harvester update a node that they have not cordoned: a single one.
    """
    cordoned = node.at("spec", "unschedulable").boolean
    kinds = (*_OF_SINGLE, *_CORDONING) if cordoned else _OF_SINGLE
    return next(filter(None, (unlisted(cluster, kind) for kind in kinds)), "")


_OF_SINGLE: Final = (MACHINE_CONFIG_POOL, HARVESTER_UPGRADE, UPGRADE_PLAN)
_CORDONING: Final = (CAPI_MACHINE, MACHINE_DEPLOYMENT, NM, NM_KUBEVIRT, PLAN, DAEMON_SET)


@cached
def config_pools(cluster: Cluster) -> tuple[PoolUpdate, ...]:
    """Return the roll-outs of MachineConfigPools."""
    return tuple(config_pool_updates.pools(cluster))


@cached
def machine_deployments(cluster: Cluster) -> tuple[PoolUpdate, ...]:
    """Return the roll-outs of MachineDeployments."""
    return tuple(machine_rollouts.pools(cluster))


def of_harvester(cluster: Cluster) -> tuple[PoolUpdate, ...]:
    """Return the upgrade of Harvester, if one is under way."""
    return tuple(harvester_upgrades.upgrades(cluster))


def of_plans(cluster: Cluster) -> tuple[PoolUpdate, ...]:
    """Return how far the Plans of the system-upgrade-controller are, if one is under way."""
    return tuple(plan_progress.progress(cluster))


def has_failed(cluster: Cluster) -> bool:
    """Return whether the last upgrade of Harvester, or a maintenance, has ended with an error."""
    return harvester_upgrades.has_failed(cluster) or maintenance_updates.has_failed(cluster)


@cached
def maintenances(cluster: Cluster) -> Mapping[str, NodeUpdate]:
    """Return the maintenance of each node that has one, or its reboot by kured."""
    return {**kured.updates(cluster), **maintenance_updates.of_maintenances(cluster)}


def left_alone(begun: Mapping[str, NodeUpdate], cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return the nodes that are not updated after those that have begun, where kured says so."""
    if any(update.kind != DAEMON_SET.kind for update in begun.values()):
        return {}
    return dict.fromkeys(kured.left_alone(cluster), NodeUpdate("", "", Phase.NOT_PART))


def phases(cluster: Cluster) -> Mapping[tuple[str, str], int]:
    """Return the number of known nodes by pool and phase of their update."""
    known = {node.name for node in cluster.known(NODE)}
    every = (*config_pools(cluster), *machine_deployments(cluster), *of_harvester(cluster))
    return Counter(
        (pool.name, str(update.phase))
        for pool in every
        for name, update in pool.nodes.items()
        if name in known  # Machines of other clusters are in a management cluster
    )
