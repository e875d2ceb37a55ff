"""Guests whose disks are in a Ceph cluster of Rook that takes no writes, or is about to be full."""

from __future__ import annotations

from typing import NamedTuple

from virt_admit.forecasts.outage.storage import disks
from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.forecasts.placement.components.drivers.refusing_storage import PATIENCE
from virt_admit.forecasts.placement.starts import volume_starts
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import vm_ledger


class StoppedCeph(NamedTuple):
    """A Ceph cluster that takes no writes."""

    reason: str
    """A clause about it: ``it is full (HEALTH_ERR: OSD_FULL 1 full osd(s)) for 47 min``."""
    remedy: str
    full: bool
    pool: bool
    """Whether only a pool is full, which may have no disk: for objects, or another class."""
    may_pass: bool
    """Whether it may have begun a moment ago."""


def stopped(ceph: Object, cluster: Cluster) -> StoppedCeph | None:
    """Return why a Ceph cluster takes no reads or writes; None: it does, or will in a moment."""
    found = refusing_storage.of_ceph(ceph, cluster, files=False)
    codes = refusing_storage.refusals(ceph, files=False)
    stops = refusing_storage.has_stopped(ceph, cluster)
    changed = ceph.at("status", "ceph", "lastChanged").text
    if found is None or stops is False:
        return None
    if stops is None:  # a start that hangs for so long is evidence of its own
        pods = _starting(ceph, cluster)
        stops = any(clock.has_lasted(pod.created, PATIENCE, cluster) for pod in pods) or None
    error = ceph.at("status", "ceph", "health").text == refusing_storage.ERROR
    lasts = (
        clock.lasting(changed, cluster) if error and refusing_storage.is_alone(ceph, codes) else ""
    )
    own = found.reason.removeprefix(f"CephCluster {ceph.full_name} ")
    return StoppedCeph(
        f"it {own}{lasts}",
        found.remedy if stops else refusing_storage.once_it_lasts(ceph),
        full="OSD_FULL" in codes,
        pool=refusing_storage.is_of_pool(ceph),
        may_pass=stops is None,
    )


def filling(ceph: Object) -> str:
    """Return which checks say that a Ceph cluster fills up; empty: none, or it is full."""
    return "" if refusing_storage.is_full(ceph) else refusing_storage.filling(ceph)


def of(ceph: Object, cluster: Cluster) -> list[str]:
    """Return the VMIs that run with a disk in a Ceph cluster."""
    every = (disk for some in cluster.cached(disks.by_volume).values() for disk in some)
    return sorted({disk.vmi.full_name for disk in every if disk.node and _is_in(disk, ceph)})


def starting(ceph: Object, cluster: Cluster) -> list[str]:
    """Return the VMIs whose pod does not start, as a call about a volume there hangs."""
    return sorted(f"{pod.namespace}/{vm_ledger.vmi_name(pod)}" for pod in _starting(ceph, cluster))


def _starting(ceph: Object, cluster: Cluster) -> list[Object]:
    return [
        pod
        for pod in cluster.known(POD)
        if vm_ledger.vmi_name(pod)
        and not pod.ended
        and not pod.is_true("Ready")
        and (claim := volume_starts.stopped_claim(pod, cluster))
        and (its := refusing_storage.ceph_of(pod.namespace, claim, cluster)) is not None
        and its.full_name == ceph.full_name
    ]


def _is_in(disk: disks.Disk, ceph: Object) -> bool:
    return refusing_storage.namespace_of(disk.driver, disk.cluster) == ceph.namespace
