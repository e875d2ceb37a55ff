"""Migrations that libvirt refuses before it copies anything, as it does not take the disks for
shared or their cache for coherent.

KubeVirt asks only for ReadWriteMany. libvirt looks at the type of the file system under each disk
that is written, so that no other node and no repetition helps. Since 1.5 virt-launcher names the
claims with ReadWriteMany to its libvirt, for guests that it has started since. Sources:
libvirt/libvirt:src/qemu/qemu_migration.c#qemuMigrationSrcIsSafe,
:src/util/virfile.c#virFileIsSharedFSType; kubevirt/kubevirt:pkg/virt-controller/services/
rendervolumes.go#SharedFilesystemPaths (pull request 13713), :pkg/virt-launcher/virtwrap/
live-migration-source.go (MIGRATE_UNSAFE); issues 9643, 10094.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, PV, PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migratability, vmis, vms
from virt_admit.model.kubevirt.settings import configuration, migration_limits, versions
from virt_admit.model.lookups import csi_of, find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = {
    KUBEVIRT: (),
    HCO: (),
    PVC: ("spec.accessModes", "spec.storageClassName", "spec.volumeMode", "spec.volumeName"),
    PV: ("spec.csi.driver",),
    VMI: (f"metadata.labels.{vmis.OUTDATED}", "spec.domain.devices.disks", "spec.volumes"),
}
_NOT_SHARED: Final = "Migration without shared storage is unsafe"
_CACHED: Final = "Migration may lead to data corruption if disks use cache"
_OVERRIDE: Final = "unsafeMigrationOverride"
_KNOWN: Final = "NFS, CephFS, GlusterFS, SMB, AFS, GFS2, OCFS2, ACFS, GPFS and Quobyte"
_DRIVERS: Final = ("nfs", "cephfs", "gluster", "smb", "cifs", "gpfs", "spectrumscale", "quobyte")
"""Parts of the names of drivers whose file systems libvirt knows as shared."""


def problem(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return that libvirt refuses each migration of a VMI for its disks; None: a migration failed
    for another reason, or the check is off now.
    """
    if (_NOT_SHARED not in failure and _CACHED not in failure) or _is_off(cluster):
        return None
    if _CACHED in failure:
        return _of_cache(vmi, failure)
    found = list(_files(vmi, cluster))
    unknown = [each for each, driver in found if not _is_known(driver)]
    disks = unknown or [each for each, _ in found]
    what = f"the file system of {names(disks, 300)}" if disks else "that of its disks"
    reason = (
        f"libvirt refuses it before it copies anything ({_NOT_SHARED}), whatever the node, as it "
        f"does not know {what} as shared (it knows {_KNOWN})"
    )
    return Problem(reason, _remedy(vmi, cluster), ProblemCause.MIGRATION_FAILS)


def _is_off(cluster: Cluster) -> bool:
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    return found is not None and migration_limits.block(found)[_OVERRIDE].boolean is True


def _files(vmi: Object, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield each claim that is mounted as a file system, with what makes it, and its driver."""
    for volume in vms.vmi_spec(vmi)["volumes"].items():
        named = migratability.claim_of(volume)
        name = named.text if named is not None else None
        claim = find(cluster, PVC, vms.namespace_of(vmi), name)
        if claim is None or claim.at("spec", "volumeMode").text == "Block":
            continue
        driver = csi_of(claim, cluster)["driver"].text or ""
        by = f", driver {driver}" if driver else ""
        kind = claim.at("spec", "storageClassName").text
        of = f", class {kind}" if kind else ""
        yield f"claim {claim.name} (volumeMode Filesystem{by}{of})", driver


def _is_known(driver: str) -> bool:
    return any(part in driver for part in _DRIVERS)


def _remedy(vmi: Object, cluster: Cluster) -> str:
    """Return how the VM leaves its node, and what lets it migrate later."""
    since = versions.Feature.SHARED_PATHS.since
    ways: list[str] = []
    if not versions.has_release(cluster, since):
        ways.append(
            f"update KubeVirt to {since} or later, which names ReadWriteMany claims to libvirt as "
            "shared, and restart the VM then"
        )
    elif vmis.OUTDATED in vmi.labels:
        ways.append(
            f"restart the VM: since KubeVirt {since} a new virt-launcher names its ReadWriteMany "
            "claims to libvirt as shared"
        )
    ways.append(
        "move its disk to a ReadWriteMany claim of volumeMode Block, or to a file system that "
        "libvirt knows (NFS, CephFS)"
    )
    if configuration.known_or_none(configuration.hyperconverged, cluster) is None:
        ways.append(
            f"as a decision, set {_OVERRIDE}: true in KubeVirt spec.configuration.migrations, "
            "which ends that check for all VMs: a disk that the other node does not see as the "
            "same file is destroyed"
        )
    owner = vmi.owned_by(VM.kind)
    stop = virtctl("stop", owner, vms.namespace_of(vmi)) if owner else ""
    lasting = "; or ".join(ways)
    if not stop:
        return lasting
    return typed("stop it for the drain, and start it on another node", stop, f"or {lasting}")


def _of_cache(vmi: Object, failure: str) -> Problem:
    """Return that the cache of a disk is one with which libvirt migrates no file."""
    disks = vms.vmi_spec(vmi).at("domain", "devices", "disks").items()
    cached = [
        f"disk {each['name'].text} has cache {each['cache'].text}"
        for each in disks
        if each["cache"].text not in (None, "none")
    ]
    whose = names(cached, 200) or "KubeVirt gives no cache none where storage has no O_DIRECT"
    remedy = (
        "remove that cache setting in the VM, so that KubeVirt takes none, and restart it"
        if cached
        else "move its disk to storage that supports O_DIRECT, and restart the VM"
    )
    reason = f"libvirt refuses it before it copies anything ({failure.rstrip('. ')}): {whose}"
    return Problem(reason, remedy, ProblemCause.MIGRATION_FAILS)
