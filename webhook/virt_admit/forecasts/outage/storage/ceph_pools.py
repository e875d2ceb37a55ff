"""Pools of Rook's Ceph of which too few copies are left: reads and writes of their volumes hang
until an OSD is back.

A pool needs ``size - size // 2`` of its copies
(ceph/ceph:src/common/config_proxy.h#get_osd_pool_default_min_size). Copies are in different failure
domains, which Rook writes on the pods of OSDs as ``topology-location-DOMAIN``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.storage.disks import Disk, DiskLoss
from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_BLOCK_POOL, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import grouped

READS: Final[Reads] = {
    CEPH_BLOCK_POOL: ("spec.failureDomain", "spec.replicated.size"),
    POD: ("metadata.labels", "spec.nodeName", "status.phase"),
}
_OSD: Final = "rook-ceph-osd"
_SAFE: Final = 3


def lost(disk: Disk, namespace: str, loss: Loss) -> DiskLoss | None:
    """Return that a volume has too few copies after a loss, or may have; None: nothing says so."""
    pool = _pool(disk, namespace, loss.cluster)
    size = pool.at("spec", "replicated", "size").integer if pool is not None else None
    if pool is None or not size or size < 0 or unlisted(loss.cluster, POD):
        return None
    domain = pool.at("spec", "failureDomain").text or "host"
    osds = list(_osds(namespace, domain, loss.cluster))
    domains = {where for _, where in osds}
    hit = {where for node, where in osds if node in loss.lost}
    copies, needed = min(size, len(domains)), size - size // 2
    left = copies - min(len(hit), copies)
    if not hit or left >= needed:
        return None
    certain = len(domains) <= size or size == 1
    kept = f"may keep {left}" if not certain else f"keeps {left}"
    reason = (
        f"pool {pool.name} of Ceph {kept} of {size} {'copy' if size == 1 else 'copies'} of some "
        f"data, and needs {needed}"
    )
    return DiskLoss(reason, _remedy(pool, size, domain), certain)


def _remedy(pool: Object, size: int, domain: str) -> str:
    if size < _SAFE:
        data = {"spec": {"replicated": {"size": _SAFE}}}
        return typed(
            "keep three copies", merge_patch(CEPH_BLOCK_POOL, pool.name, pool.namespace, data)
        )
    return f"add OSDs in another failure domain ({domain}), or spread them over more nodes"


def _pool(disk: Disk, namespace: str, cluster: Cluster) -> Object | None:
    pools = cluster.known(CEPH_BLOCK_POOL, namespace)
    named = [each for each in pools if each.name == disk.pool]
    return named[0] if named else pools[0] if len(pools) == 1 and not disk.pool else None


def _osds(namespace: str, domain: str, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield the node and the failure domain of each OSD."""
    key = "ceph-osd-id" if domain == "osd" else f"topology-location-{domain}"
    for pod in cluster.cached(_pods).get(namespace, ()):
        where = pod.labels.get(key) or (pod.at("spec", "nodeName").text if domain == "host" else "")
        if where:
            yield pod.at("spec", "nodeName").text or "", where


def _pods(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    own = (pod for pod in cluster.known(POD) if pod.labels.get("app") == _OSD and not pod.ended)
    return grouped(own, lambda pod: pod.namespace)
