"""How much room Longhorn has for new copies: it counts the full sizes of volumes,
not the free space of a disk.

Source: longhorn/longhorn-manager:scheduler/replica_scheduler.go#IsSchedulableToDisk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn import longhorn_copies, volume_users
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_NODE,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    POD,
    VM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import fields
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import claim_users

READS: Final[Reads] = {
    LONGHORN_NODE: ("spec", "status.diskStatus"),
    LONGHORN_SETTING: ("value",),
    LONGHORN_VOLUME: ("spec.size", "status.kubernetesStatus", "status.state"),
    LONGHORN_REPLICA: ("spec.nodeID", "spec.volumeName"),
    POD: ("spec.volumes.persistentVolumeClaim.claimName", "status.phase"),
    VM: ("spec.template.spec.volumes", "spec.template.spec.utilityVolumes"),
}
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


def unused(cluster: Cluster) -> str:
    """Return which claims with placed copies no VM and no pod uses, as ``no VM and no pod uses
    claims shop/a, shop/b, together 80 GiB``; empty: there are none, or not everything was read.

    A restore of Harvester that retains the former volumes leaves such claims.
    """
    if any(unlisted(cluster, kind) for kind in (VM, POD, LONGHORN_VOLUME, LONGHORN_REPLICA)):
        return ""
    used = {
        (vm.namespace, claim)
        for vm in cluster.known(VM)
        for claim in launcher_pod.all_claims(vms.vmi_spec(vm))
    }
    copies = cluster.cached(longhorn_copies.by_volume)
    free: list[tuple[int, str]] = []
    for volume in cluster.known(LONGHORN_VOLUME):
        namespace, claim = volume_users.claim_of(volume)
        size = volume.at("spec", "size").text or ""
        placed = any(each.at("spec", "nodeID").text for each in copies.get(volume.name, ()))
        rests = volume.at("status", "state").text == "detached" and placed and size.isdecimal()
        taken = (namespace, claim) in used or claim_users(namespace, claim, cluster)
        if rests and claim and not taken and len(size) < _DIGITS:
            free.append((-int(size), f"{namespace}/{claim}"))
    if not free:
        return ""
    which = names((name for _, name in sorted(free)), 200)
    total = gib(-sum(size for size, _ in free))
    return f"no VM and no pod uses claim{'s' if len(free) > 1 else ''} {which}, together {total}"


_DIGITS: Final = 19


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
