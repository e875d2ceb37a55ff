"""How much room Longhorn has for new copies: it counts the full sizes of volumes,
not the free space of a disk.

Source: longhorn/longhorn-manager:scheduler/replica_scheduler.go#IsSchedulableToDisk.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn import longhorn_copies, volume_users
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    DATA_SOURCE,
    DEPLOYMENT,
    HARVESTER_RESTORE,
    LONGHORN_NODE,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    NODE,
    POD,
    STATEFUL_SET,
    VM,
    VMI,
    VOLUME_SNAPSHOT,
)
from virt_admit.model.kubernetes.nodes import has_harvester
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import down_vms, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import claim_users

_TEMPLATED: Final = (DEPLOYMENT, STATEFUL_SET)
READS: Final[Reads] = union(
    down_vms.READS,
    {
        **dict.fromkeys(
            _TEMPLATED, ("spec.template.spec.volumes.persistentVolumeClaim.claimName",)
        ),
        DATA_SOURCE: ("spec.source",),
        NODE: ("metadata.labels",),
        HARVESTER_RESTORE: ("spec.newVM", "status.restores"),
        VOLUME_SNAPSHOT: ("spec.source.persistentVolumeClaimName",),
        LONGHORN_NODE: ("spec", "status.diskStatus"),
        LONGHORN_SETTING: ("value",),
        LONGHORN_VOLUME: ("spec.size", "status.kubernetesStatus", "status.state"),
        LONGHORN_REPLICA: ("spec.nodeID", "spec.volumeName"),
        POD: ("spec.volumes.persistentVolumeClaim.claimName", "status.phase"),
        VM: ("spec.template.spec.volumes", "spec.template.spec.utilityVolumes"),
    },
)
_SHARE: Final = "storage-over-provisioning-percentage"
_OVERCOMMIT: Final = "overcommit-config"
"""The setting of Harvester with the shares of processors, memory and storage."""


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
    """Return which claims with placed copies a restore of Harvester has replaced, as ``no VM and no
    pod uses claims shop/a, shop/b, which a restore has replaced, together 80 GiB``; empty: there
    are none, or not everything was read.

    A restore that retains the former volumes leaves such claims. Others without a pod are not told:
    a workload without replicas, or a template, may need them.
    """
    return cluster.cached(_unused)


def _unused(cluster: Cluster) -> str:
    if any(unlisted(cluster, kind) for kind in (VM, POD, LONGHORN_VOLUME, LONGHORN_REPLICA)):
        return ""
    former = _replaced(cluster)
    former = former - _named(cluster) if former else former
    free = [
        (-size, f"{namespace}/{claim}")
        for (namespace, claim), size in (_resting(cluster) if former else ())
        if (namespace, claim) in former and not claim_users(namespace, claim, cluster)
    ]
    if not free:
        return ""
    which = names((name for _, name in sorted(free)), 200)
    total = gib(-sum(size for size, _ in free))
    many = "s" if len(free) > 1 else ""
    return (
        f"no VM and no pod uses claim{many} {which}, which a restore has replaced, together "
        f"{total}: check what {'they hold' if many else 'it holds'}"
    )


def of_stopped(cluster: Cluster) -> str:
    """Return how much the volumes of VMs that are stopped take, as ``stopped VMs have shop/a
    290 GiB``, and that it is data; empty: there are none, or not everything was read.
    """
    return cluster.cached(_of_stopped)


def _of_stopped(cluster: Cluster) -> str:
    kinds = (VM, VMI, POD, LONGHORN_VOLUME, LONGHORN_REPLICA)
    if any(unlisted(cluster, kind) for kind in kinds):
        return ""
    owners = {
        (vm.namespace, claim): vm
        for vm in cluster.known(VM)
        if down_vms.is_stopped(vm, cluster)
        for claim in launcher_pod.all_claims(vms.vmi_spec(vm))
    }
    sizes: Counter[str] = Counter()
    for claim, size in _resting(cluster):
        if claim in owners:
            sizes[owners[claim].full_name] += size
    if not sizes:
        return ""
    which = names((f"{name} {gib(size)}" for name, size in sizes.most_common()), 120)
    return f"stopped VMs have {which}: as a decision, since their data goes with a volume"


def share_setting(namespace: str, cluster: Cluster) -> str:
    """Return the setting of the share of a disk that is given out, with its value if it is known.

    Harvester writes that of Longhorn from its own
    (harvester/harvester:pkg/controller/master/setting/overcommit_config.go).
    """
    share = fields(cluster, LONGHORN_SETTING, namespace, _SHARE)["value"].text
    now = f" ({share} now)" if share else ""
    if not cluster.cached(has_harvester):
        return f"{_SHARE}{now}"
    return f"storage share in Harvester's setting {_OVERCOMMIT}, which sets {_SHARE}{now}"


def _resting(cluster: Cluster) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the detached volumes that have copies on disks: the claim and the size of each."""
    copies = cluster.cached(longhorn_copies.by_volume)
    for volume in cluster.known(LONGHORN_VOLUME):
        size = size_of(volume)
        placed = any(each.at("spec", "nodeID").text for each in copies.get(volume.name, ()))
        rests = volume.at("status", "state").text == "detached" and placed
        if rests and size:
            yield volume_users.claim_of(volume), size


def _replaced(cluster: Cluster) -> Set[tuple[str, str]]:
    """Return the claims whose VMs got others from a restore of Harvester: it names the
    VolumeSnapshots of the backup, and these the claims of then
    (harvester/harvester:pkg/apis/harvesterhci.io/v1beta1/backup.go#VolumeRestore).
    """
    found: set[tuple[str, str]] = set()
    for restore in cluster.known(HARVESTER_RESTORE):
        other = restore.at("spec", "newVM").boolean
        for each in restore.at("status", "restores").items() if other is not True else ():
            name = each["volumeBackupName"].text
            taken = find(cluster, VOLUME_SNAPSHOT, restore.namespace, name)
            source = taken.at("spec", "source") if taken is not None else None
            if source is not None and (claim := source["persistentVolumeClaimName"].text):
                found.add((restore.namespace, claim))
    return found


def _named(cluster: Cluster) -> Set[tuple[str, str]]:
    """Return the claims that a VM, a template of pods or a DataSource names."""
    found = {
        (vm.namespace, claim)
        for vm in cluster.known(VM)
        for claim in launcher_pod.all_claims(vms.vmi_spec(vm))
    }
    for kind in _TEMPLATED:
        for each in cluster.known(kind):
            for volume in each.at("spec", "template", "spec", "volumes").items():
                name = volume.at("persistentVolumeClaim", "claimName").text or ""
                found.add((each.namespace, name))
    for each in cluster.known(DATA_SOURCE):
        claim = each.at("spec", "source", "pvc")
        found.add((claim["namespace"].text or each.namespace, claim["name"].text or ""))
    return found


def size_of(volume: Object) -> int:
    """Return the bytes of a volume; 0: not known."""
    digits = volume.at("spec", "size").text or ""
    return int(digits) if _SIZE.fullmatch(digits) else 0


_SIZE: Final = re.compile(r"[0-9]{1,18}")


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
