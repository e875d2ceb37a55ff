"""Ceph clusters of Rook that lose the majority of their monitors: then every read and write of
their volumes hangs.

Rook replaces a monitor only while the others have a majority. A monitor stays on its node unless it
has a volume of its own. Sources: rook/rook:pkg/operator/ceph/cluster/mon/health.go#checkHealth,
:Documentation/Storage-Configuration/Advanced/ceph-mon-health.md (Monitor Quorum); rook/rook#6413.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.storage import ceph_pools, disks
from virt_admit.forecasts.outage.storage.disks import Disk, DiskLoss
from virt_admit.model.commands import kubectl, merge_patch, typed
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    clock.READS,
    ceph_pools.READS,
    {
        CEPH_CLUSTER: ("metadata.ownerReferences", "spec.external.enable", "spec.mon.count"),
        POD: ("spec.nodeSelector", *CONDITIONS),
    },
)

_BLOCK: Final = ".rbd.csi.ceph.com"
_OF_ROOK: Final = (_BLOCK, ".cephfs.csi.ceph.com", ".nvmeof.csi.ceph.com")
"""Ends of the drivers' names, after the namespace of the operator."""
_STARTS_WITHIN: Final = datetime.timedelta(minutes=5)
"""A monitor that is down for less may be one that restarts."""
_SAFE: Final = 3
"""The least number of monitors of which one may be lost."""


class _Monitor(NamedTuple):
    name: str
    pod: Object
    ready: bool
    node: str
    bound: bool
    """Whether it can run on this node alone."""

    def is_down(self, cluster: Cluster) -> bool:
        """Whether it is down for longer than a restart takes."""
        since = self.pod.condition("Ready")["lastTransitionTime"].text or self.pod.created
        age = clock.since(since, cluster)
        return not self.ready and age is not None and age >= _STARTS_WITHIN


def is_of_ceph(disk: Disk) -> bool:
    return disk.driver.endswith(_OF_ROOK)


def lost(disk: Disk, loss: Loss) -> DiskLoss | None:
    """Return why a volume of Ceph cannot be used after a loss; None: nothing says that."""
    key = "ceph", disk.driver, disk.cluster, disk.pool
    if key not in loss.memo:
        loss.memo[key] = _lost(disk, loss)
    found: DiskLoss | None = loss.memo[key]
    return found


def _lost(disk: Disk, loss: Loss) -> DiskLoss | None:
    ceph = _cluster_of(disk, loss.cluster)
    if ceph is None:
        return None
    pool = ceph_pools.lost(disk, ceph.namespace, loss) if disk.driver.endswith(_BLOCK) else None
    quorum = _quorum(ceph, loss)
    return (
        pool if quorum is None or (pool is not None and pool.certain > quorum.certain) else quorum
    )


def touched(loss: Loss) -> Iterator[Disk]:
    """Yield the disks of all VMs that a Ceph cluster or a pool takes with it:
    those of one pool share their fate.
    """
    for some in loss.cluster.cached(_disks).values():
        if lost(some[0], loss) is not None:
            yield from some


def _disks(cluster: Cluster) -> Mapping[tuple[str, str, str], Sequence[Disk]]:
    """Return the disks of all known VMIs on Ceph by driver, Ceph cluster and pool."""
    every = (disk for some in cluster.cached(disks.by_volume).values() for disk in some)
    return grouped(filter(is_of_ceph, every), lambda disk: (disk.driver, disk.cluster, disk.pool))


def _cluster_of(disk: Disk, cluster: Cluster) -> Object | None:
    """Return the CephCluster of a volume: Rook names its namespace, where there is mostly one."""
    known = cluster.known(CEPH_CLUSTER)
    named = [each for each in known if each.namespace == disk.cluster]
    return named[0] if named else known[0] if len(known) == 1 and not disk.cluster else None


def _quorum(ceph: Object, loss: Loss) -> DiskLoss | None:
    """Return that a Ceph cluster has no majority of monitors after a loss, or may have none."""
    monitors = loss.cluster.cached(_monitors).get(ceph.namespace, ())
    if not monitors or ceph.at("spec", "external", "enable").boolean or unlisted(loss.cluster, POD):
        return None
    gone = [each for each in monitors if each.node in loss.lost]
    down = [each for each in monitors if each not in gone and not each.ready]
    up = [each for each in monitors if each not in gone and each.ready]
    wanted = ceph.at("spec", "mon", "count").integer or 0
    if not gone or len(up) > max(len(monitors), wanted) // 2:
        return None
    returning = [each for each in down if not each.is_down(loss.cluster)] + [
        each for each in gone if not each.bound
    ]
    left = (
        f"{len(up)} of {len(monitors)} in namespace {ceph.namespace} "
        f"{'is' if len(up) == 1 else 'are'} left"
    )
    reason = f"Ceph stops without a majority of its monitors: {left}"
    if len(up) > len(monitors) // 2:
        why = f"{reason}, and CephCluster {ceph.name} wants {wanted}"
        return DiskLoss(why, _remedy(ceph, down, monitors), certain=False)
    if len(up) + len(returning) > len(monitors) // 2:
        again = names(sorted(each.name for each in returning))
        return DiskLoss(
            f"{reason} until {again} starts", _remedy(ceph, down, monitors), certain=False
        )
    return DiskLoss(reason, _remedy(ceph, down, monitors))


def _remedy(ceph: Object, down: Sequence[_Monitor], monitors: Sequence[_Monitor]) -> str:
    if down:
        first = down[0]
        described = kubectl("describe", POD, first.pod.name, first.pod.namespace)
        return typed(f"repair monitor {names(sorted(each.name for each in down))} first", described)
    if len(monitors) >= _SAFE:
        return "run the monitors on more nodes or zones, so that a majority of them is left"
    words = "run three monitors on three nodes"
    if (owner := writers.owner_above(ceph)) is not None:
        field = writers.field_above(ceph, "mon", "count")
        return typed(f"{words} ({field})", owner.command("edit"))
    count = {"spec": {"mon": {"count": _SAFE}}}
    return typed(words, merge_patch(CEPH_CLUSTER, ceph.name, ceph.namespace, count))


def _monitors(cluster: Cluster) -> Mapping[str, Sequence[_Monitor]]:
    """Return the monitors by namespace.

    One that is being moved has two pods, and counts as the one that is ready.
    """
    found: dict[tuple[str, str], _Monitor] = {}
    for pod in cluster.known(POD):
        labels = pod.labels
        name = labels.get("mon") or labels.get("ceph_daemon_id")
        if labels.get("app") != "rook-ceph-mon" or not name or "mon_canary" in labels:
            continue
        if pod.ended:
            continue
        bound = "kubernetes.io/hostname" in dict(pod.at("spec", "nodeSelector").texts)
        ready = pod.is_true("Ready") and not pod.deleted
        one = _Monitor(name, pod, ready, pod.at("spec", "nodeName").text or "", bound)
        before = found.get((pod.namespace, name))
        if before is None or not before.ready:
            found[pod.namespace, name] = one
    by_namespace: dict[str, list[_Monitor]] = {}
    for (namespace, _), monitor in sorted(found.items()):
        by_namespace.setdefault(namespace, []).append(monitor)
    return by_namespace
