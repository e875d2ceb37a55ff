"""Volumes because of which Harvester's upgrade drains no node: it first waits until every attached volume is healthy.

Source: harvester/harvester:package/upgrade/upgrade_node.sh#wait_longhorn_engines (skipped on one and on two nodes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads

_MANAGED: Final = "harvesterhci.io/managed"

READS: Final[Reads] = {
    NODE: (f"metadata.labels.{_MANAGED}",),
    LONGHORN_VOLUME: ("spec.numberOfReplicas", "status.state", "status.robustness", *CONDITIONS),
}

_FEW: Final = 2
"""Nodes up to which Harvester does not wait: one of them is away, so volumes are degraded."""


def unread(cluster: Cluster) -> Iterator[Unseen]:
    """Yield that volumes of a Harvester cluster cannot be read, so that one of them may stop its upgrade."""
    if _waits_for_volumes(cluster):
        yield from more_may_exist(cluster, LONGHORN_VOLUME)


def degraded_for_good(cluster: Cluster) -> list[Object]:
    """Return the attached volumes that are degraded, and of which Longhorn cannot place a further replica."""
    if not _waits_for_volumes(cluster):
        return []
    return [volume for volume in cluster.known(LONGHORN_VOLUME) if _is_stuck(volume)]


def _waits_for_volumes(cluster: Cluster) -> bool:
    return sum(node.labels.get(_MANAGED) == "true" for node in cluster.known(NODE)) > _FEW


def _is_stuck(volume: Object) -> bool:
    status = volume["status"]
    degraded = status["state"].text == "attached" and status["robustness"].text == "degraded"
    return degraded and volume.condition("Scheduled")["status"].text == "False"
