"""How much room Longhorn has for new copies: it counts the full sizes of volumes,
not the free space of a disk.

Source: longhorn/longhorn-manager:scheduler/replica_scheduler.go#IsSchedulableToDisk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_NODE, LONGHORN_SETTING
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import fields

READS: Final[Reads] = {LONGHORN_NODE: ("spec", "status.diskStatus"), LONGHORN_SETTING: ("value",)}
_SHARE: Final = "storage-over-provisioning-percentage"


class DiskRoom(NamedTuple):
    """The room of one disk for copies, in bytes."""

    left: int
    node: str
    maximum: int
    reserved: int
    scheduled: int
    usable: int


def words(size: int, namespace: str, cluster: Cluster) -> str:
    """Return how much room is left where most is; empty: a copy of this size fits,
    or that is not known.
    """
    share = fields(cluster, LONGHORN_SETTING, namespace, _SHARE)["value"].text or ""
    nodes = cluster.known(LONGHORN_NODE)
    if not share.isdecimal() or len(share) > 6:
        return ""
    most = max((disk for node in nodes for disk in _disks(node, int(share))), default=None)
    if most is None or most.left >= size:
        return ""
    at = f", at {share} %" if share != "100" else ""
    kept = f", {_plain(most.reserved)} of {gib(most.maximum)} reserved{at}"
    taken = f"{_plain(most.scheduled)} of {gib(most.usable)} scheduled"
    return f"by full sizes, at most {gib(max(most.left, 0))} are left ({most.node}: {taken}{kept})"


def _plain(size: int) -> str:
    return gib(size).removesuffix(" GiB")


def gib(size: int) -> str:
    """Return a size for messages."""
    return f"{size / 2**30:.4g} GiB"


def _disks(node: Object, share: int) -> Iterator[DiskRoom]:
    """Yield the disks of a node that may take new copies, and whose numbers are known."""
    if node.at("spec", "allowScheduling").boolean is not True:
        return
    for name in node.at("status", "diskStatus").map:
        disk, status = node.at("spec", "disks", name), node.at("status", "diskStatus", name)
        maximum, scheduled = status["storageMaximum"].integer, status["storageScheduled"].integer
        reserved = disk["storageReserved"].integer
        if disk["allowScheduling"].boolean is not True or None in (maximum, scheduled, reserved):
            continue
        whole, taken, kept = maximum or 0, scheduled or 0, reserved or 0
        usable = (whole - kept) * share // 100
        yield DiskRoom(usable - taken, node.name, whole, kept, taken, usable)
