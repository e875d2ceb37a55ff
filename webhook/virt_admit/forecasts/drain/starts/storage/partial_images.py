"""Disks whose image does not fit although their claim is large enough: an interrupted attempt has
left its part of the image there.

CDI compares the image with the free space of the file system before it removes the file of the
attempt before. So every further attempt fails alike, with the advice to take a larger claim.
Sources: kubevirt/containerized-data-importer:pkg/importer/data-processor.go#NewDataProcessor,
#convert, :pkg/image/qemu.go#checkIfURLIsValid;
harvester/harvester:pkg/controller/master/upgrade/upgrade_repo.go#CreateImageFromISO (the image
belongs to its Upgrade), issues 10056, 11143, 11729.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, HARVESTER_UPGRADE, PV, PVC, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import csi_of, find
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.resources import amount

READS: Final[Reads] = {
    DATA_VOLUME: ("metadata.labels", "metadata.ownerReferences", "spec.checkpoints"),
    HARVESTER_UPGRADE: (*CONDITIONS, "status.imageID"),
    PVC: ("spec.resources.requests.storage", "spec.volumeMode", "spec.volumeName", "status"),
    PV: ("spec.csi.driver",),
    VM: ("spec.dataVolumeTemplates",),
}
TOO_LARGE: Final = re.compile(
    r"image size (\d{1,18}) is larger than the reported available storage (\d{1,18})"
    r"(?:\. A larger PVC is required)?",
    re.IGNORECASE,
)
"""What CDI says, in bytes. The free space is the requested size at most."""
_FITS: Final = 0.95
"""The share of a claim that a file system leaves for an image: CDI adds 6 percent for it."""
_TAKEN: Final = 0.85
"""A file system itself takes less than the rest, for its tables and reserve, besides its log."""
_LOG: Final = 256 << 20
"""What the log of a file system may take of a small claim. That of XFS has 64 MiB at least, and on
fast disks as much as many CPUs need at once, up to a quarter of the claim
(xfsprogs:mkfs/xfs_mkfs.c#calculate_log_size #calc_concurrency_logblocks)."""
_OWN: Final = (
    *("driver.longhorn.io", "linstor.csi.linbit.com", "rbd.csi.ceph.com"),
    *("topolvm.io", "topolvm.cybozu.com", "local.csi.openebs.io", "io.openebs.csi-mayastor"),
    *("ebs.csi.aws.com", "disk.csi.azure.com", "pd.csi.storage.gke.io", "cinder.csi.openstack.org"),
)
"""Drivers that make a block device of each volume, so that no file system has two of them. The
volumes of others may be folders of one, as of NFS, SMB, CephFS, EFS or a disk of the node."""
_CEPH: Final = ".rbd.csi.ceph.com"
"""How its name ends where it begins with the namespace of its operator."""
_CRON: Final = "cdi.kubevirt.io/dataImportCron"


def of_failure(why: str, disk: Object, claims: Collection[str], cluster: Cluster) -> Problem | None:
    """Return that an image would fit into the claim of a disk; None: it would not, or the disk
    fails for another cause.

    Args:
        why: what the pod that fills the disk says.
        disk: the data volume.
        claims: the claims that it may be filled in.
        cluster: the cluster.
    """
    found = TOO_LARGE.search(why)
    target = _target(disk, claims, cluster)
    if found is None or target is None or disk.at("spec", "checkpoints").present:
        return None
    image, free = int(found[1]), int(found[2])
    size = amount("storage", target.at("status", "capacity", "storage").value) or 0
    asked = amount("storage", target.at("spec", "resources", "requests", "storage").value) or 0
    if image > _FITS * size or free >= _TAKEN * min(size, asked or size) - _LOG:
        return None
    begin = f'"{found[0]}", although claim {target.name} has {size}'
    brief = f"image size {image} is larger than the free {free}, although the claim has {size}"
    if not _is_its_own(target, cluster):
        return Problem(
            f"{begin}. Its file system may be shared with other volumes, which use the rest, or "
            "an interrupted attempt has left a part of the image there",
            typed(
                f"free space on the file system of claim {target.name}",
                about("describe", target, PVC),
            ),
            brief=f"{brief} (its file system may be shared with other volumes)",
        )
    return Problem(
        f"{begin}: the rest of it is used, as by a part of the image that an interrupted attempt "
        "has left, which CDI does not remove. It does not end by itself, and a larger claim is not "
        "needed",
        made_again(disk, cluster),
        brief=f"{brief}: an interrupted attempt has left a part of the image there",
    )


def _target(disk: Object, claims: Collection[str], cluster: Cluster) -> Object | None:
    """Return the claim with a file system that is filled; None: it is not known."""
    found = (find(cluster, PVC, disk.namespace, name) for name in reversed(tuple(claims)))
    return next(
        (
            each
            for each in found
            if each is not None
            and each.at("status", "phase").text == "Bound"
            and each.at("spec", "volumeMode").text != "Block"
        ),
        None,
    )


def _is_its_own(claim: Object, cluster: Cluster) -> bool:
    """Return whether no other volume is certainly on the file system of a claim."""
    driver = csi_of(claim, cluster)["driver"].text
    return driver is not None and (driver in _OWN or driver.endswith(_CEPH))


def maker(disk: Object) -> str:
    """Return what has made a disk and holds its size and source, as ``Migration move``; empty: a
    VM, or nothing that is known.

    Source: kubevirt/containerized-data-importer:pkg/controller/dataimportcron-controller.go.
    """
    owner, cron = disk.controller, disk.labels.get(_CRON)
    if owner is None:
        return f"DataImportCron {cron}" if cron else ""
    kind = owner["kind"].text
    return f"{kind} {owner['name'].text}" if kind and kind != VM.kind else ""


def upgrade_of(disk: Object, cluster: Cluster) -> Object | None:
    """Return the upgrade of Harvester that waits for a disk as its image; None: none is known."""
    return next(
        (
            each
            for each in cluster.known(HARVESTER_UPGRADE)
            if each.at("status", "imageID").text == disk.full_name
            and not each.is_true("ImageReady")
        ),
        None,
    )


def made_again(disk: Object, cluster: Cluster) -> str:
    """Return how a disk that was never filled is made again, by what made it."""
    if (upgrade := upgrade_of(disk, cluster)) is not None:
        words = (
            f"delete Upgrade {upgrade.name} (its image and claims go with it), give CDI's pods "
            "more memory if the first attempt was OOMKilled, then start it again"
        )
        return typed(words, kubectl("delete", HARVESTER_UPGRADE, upgrade.name, upgrade.namespace))
    deleted = kubectl("delete", DATA_VOLUME, disk.name, disk.namespace)
    vm = find(cluster, VM, disk.namespace, disk.owned_by(VM.kind))
    if vm is not None and vms.disk_template(vm, disk.name) is not None:
        return typed("delete that DataVolume, which KubeVirt makes again from its VM", deleted)
    if made_by := maker(disk):
        return (
            f"let {made_by} make DataVolume {disk.name} again, with a new claim; nothing is "
            "lost, as it was never filled"
        )
    shown = kubectl("get", DATA_VOLUME, disk.name, disk.namespace, "-o", "yaml")
    return typed(f"create DataVolume {disk.name} again, with a new claim; it was not filled", shown)
