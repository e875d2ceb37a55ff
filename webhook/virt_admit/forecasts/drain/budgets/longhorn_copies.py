"""The copies of Longhorn's volumes: on which nodes a volume has healthy ones.

Source: longhorn/longhorn-manager:controller/volume_controller.go#isHealthyAndActiveReplica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_REPLICA
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {
    LONGHORN_REPLICA: ("spec.volumeName", "spec.nodeID", "spec.healthyAt", "spec.failedAt")
}


def is_healthy(replica: Object) -> bool:
    return bool(replica.at("spec", "healthyAt").text) and not replica.at("spec", "failedAt").text


def by_node(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the replicas by namespace and node."""
    found: dict[tuple[str, str], list[Object]] = {}
    for replica in cluster.known(LONGHORN_REPLICA):
        found.setdefault((replica.namespace, replica.at("spec", "nodeID").text or ""), []).append(
            replica
        )
    return found


def by_volume(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the replicas by volume: a cluster has one Longhorn."""
    found: dict[str, list[Object]] = {}
    for replica in cluster.known(LONGHORN_REPLICA):
        found.setdefault(replica.at("spec", "volumeName").text or "", []).append(replica)
    return found


def healthy(cluster: Cluster) -> Mapping[tuple[str, str], set[str]]:
    """Return, by namespace and volume, the nodes with a healthy replica."""
    found: dict[tuple[str, str], set[str]] = {}
    for replica in cluster.known(LONGHORN_REPLICA):
        if is_healthy(replica):
            spec = replica["spec"]
            nodes = found.setdefault((replica.namespace, spec["volumeName"].text or ""), set())
            nodes.add(spec["nodeID"].text or "")
    return found


def volumes_by_node(cluster: Cluster) -> Mapping[str, set[str]]:
    """Return the volumes with a healthy replica on each node."""
    found: dict[str, set[str]] = {}
    for (_, volume), nodes in cluster.cached(healthy).items():
        for node in nodes:
            found.setdefault(node, set()).add(volume)
    return found
