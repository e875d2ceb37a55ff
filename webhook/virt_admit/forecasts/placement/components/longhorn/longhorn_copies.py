"""The copies of Longhorn's volumes: on which nodes a volume has healthy ones; and its release.

Source: longhorn/longhorn-manager:controller/volume_controller.go#isHealthyAndActiveReplica.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes import workloads
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ENGINE,
    LONGHORN_MANAGER,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import fields, grouped

READS: Final[Reads] = {
    LONGHORN_REPLICA: ("spec.volumeName", "spec.nodeID", "spec.healthyAt", "spec.failedAt")
}
OF_RELEASE: Final[Reads] = {LONGHORN_SETTING: ("value",)}
"""What ``release`` reads."""
OF_RUNNING_RELEASE: Final[Reads] = {**OF_RELEASE, LONGHORN_MANAGER: ("spec.image",)}
"""What ``running_release`` reads."""
_VERSION: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})\.(\d{1,3})")


def is_healthy(replica: Object) -> bool:
    return bool(replica.at("spec", "healthyAt").text) and not replica.at("spec", "failedAt").text


def by_node(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the replicas by namespace and node."""
    return grouped(
        cluster.known(LONGHORN_REPLICA),
        lambda replica: (replica.namespace, replica.at("spec", "nodeID").text or ""),
    )


def by_volume(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the replicas by volume, sorted by name: a cluster has one Longhorn."""
    known = sorted(cluster.known(LONGHORN_REPLICA), key=lambda replica: replica.name)
    return grouped(known, lambda replica: replica.at("spec", "volumeName").text or "")


def engines_by_volume(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the engines by volume, sorted by name: one that migrates has two."""
    every = sorted(cluster.known(LONGHORN_ENGINE), key=lambda each: each.name)
    return grouped(every, lambda each: each.at("spec", "volumeName").text or "")


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


def release(volume: Object, cluster: Cluster) -> tuple[int, ...]:
    """Return the numbers of the release of Longhorn; empty: not known."""
    setting = fields(cluster, LONGHORN_SETTING, volume.namespace, "current-longhorn-version")
    numbers = _VERSION.match(setting["value"].text or "")
    return tuple(map(int, numbers.groups())) if numbers else ()


def running_release(volume: Object, cluster: Cluster) -> tuple[int, ...]:
    """Return the same; without its setting, by the newest image of the instance managers, which
    from 1.5 on has the number of the release.
    """
    if found := release(volume, cluster):
        return found
    images = (each.at("spec", "image").text or "" for each in cluster.known(LONGHORN_MANAGER))
    tags = (_VERSION.match(workloads.image_tag(image)) for image in images)
    return max((tuple(map(int, tag.groups())) for tag in tags if tag is not None), default=())
