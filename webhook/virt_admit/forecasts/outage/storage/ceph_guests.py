"""Guests whose disks are in a Ceph cluster of Rook that takes no writes, or is about to be full."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.guests import refusing_storage
from virt_admit.forecasts.outage.storage import disks
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object

_PATIENCE: Final = timedelta(minutes=10)
"""Parts of the data are unavailable for a moment when an OSD starts again."""
_ERROR: Final = "HEALTH_ERR"
_POOL: Final = frozenset(("POOL_FULL",))


class StoppedCeph(NamedTuple):
    """A Ceph cluster that takes no writes."""

    reason: str
    """A clause about it: ``it is full (HEALTH_ERR: OSD_FULL 1 full osd(s)) for 47 min``."""
    remedy: str
    full: bool
    pool: bool
    """Whether only a pool is full, which may have no disk: for objects, or another class."""


def stopped(ceph: Object, cluster: Cluster) -> StoppedCeph | None:
    """Return why a Ceph cluster takes no reads or writes; None: it does, or will in a moment.

    Rook says when the health as a whole has changed, not since when a check fails.
    """
    found = refusing_storage.of_ceph(ceph, files=False)
    codes = refusing_storage.refusals(ceph, files=False)
    full = refusing_storage.is_full(ceph)
    changed = ceph.at("status", "ceph", "lastChanged").text
    age = clock.since(changed, cluster)
    if found is None or not (full or (age is not None and age >= _PATIENCE)):
        return None
    error = ceph.at("status", "ceph", "health").text == _ERROR
    lasts = (
        clock.lasting(changed, cluster) if error and refusing_storage.is_alone(ceph, codes) else ""
    )
    own = found.reason.removeprefix(f"CephCluster {ceph.full_name} ")
    return StoppedCeph(f"it {own}{lasts}", found.remedy, full, pool=codes.keys() == _POOL)


def filling(ceph: Object) -> str:
    """Return which checks say that a Ceph cluster fills up; empty: none, or it is full."""
    return "" if refusing_storage.is_full(ceph) else refusing_storage.filling(ceph)


def of(ceph: Object, cluster: Cluster) -> list[str]:
    """Return the VMIs that run with a disk in a Ceph cluster."""
    every = (disk for some in cluster.cached(disks.by_volume).values() for disk in some)
    return sorted({disk.vmi.full_name for disk in every if disk.node and _is_in(disk, ceph)})


def _is_in(disk: disks.Disk, ceph: Object) -> bool:
    return refusing_storage.namespace_of(disk.driver, disk.cluster) == ceph.namespace
