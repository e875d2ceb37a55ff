"""The phases of hotplugged volumes in ``status.volumeStatus``,
which volumes the guest does not have, and which it cannot lose.

Source: kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#VolumePhase.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import PV, PVC, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migratability, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.scheduler import volumes

MOUNTED: Final = "MountedToPod"
LEAVING: Final = ("Detaching", "UnMountedFromPod")
ARRIVING: Final = ("Pending", "Bound", "AttachedToNode", MOUNTED)


def claims(vmi: Object) -> Iterator[tuple[str, str]]:
    """Yield the volumes of a VMI spec that use a claim, each with the claim."""
    for volume in vmi.at("spec", "volumes").items():
        claim = migratability.claim_of(volume)
        if claim is not None and claim.text and volume["name"].text:
            yield volume["name"].text, claim.text
    for volume in vmi.at("spec", "utilityVolumes").items():
        if volume["name"].text and volume["claimName"].text:
            yield volume["name"].text, volume["claimName"].text


def is_utility(vmi: Object, volume: str) -> bool:
    """Whether a volume is for virt-launcher alone: it is complete when it is mounted there
    (types.go#UtilityVolume).
    """
    return vmi.at("spec", "utilityVolumes").named(volume).present


def absent_claims(vmi: Object) -> frozenset[str]:
    """Return the claims of the hotplugged volumes that the guest does not have."""
    known = dict(claims(vmi))
    return frozenset(
        known[status["name"].text or ""]
        for status in vmi.at("status", "volumeStatus").items()
        if status["name"].text in known
        and status["hotplugVolume"].is_map
        and not status["target"].text
        and status["phase"].text in (*LEAVING, *ARRIVING)
    )


# --- disks that stay while a guest has them -------------------------------------------------------

_OF_RBD: Final = ("mounter", "tryOtherMounters", "unmapOptions")
DISK_READS: Final[Reads] = {
    PVC: ("spec.volumeName",),
    PV: (
        *("spec.csi.driver", "spec.volumeMode"),
        *(f"spec.csi.volumeAttributes.{name}" for name in _OF_RBD),
    ),
}
"""The fields that ``is_kept_open`` reads."""


def is_kept_open(namespace: str, claim: str, cluster: Cluster) -> bool:
    """Return whether the driver of a claim certainly detaches no disk that a guest has open.

    The kernel refuses to unmap such an RBD device (EBUSY), unless by the option ``force``; other
    drivers do not ask. Sources: kubevirt/kubevirt#15093; ceph/ceph-csi:internal/rbd/nodeserver.go
    #NodeUnstageVolume, :internal/rbd/rbd_attach.go#detachRBDImageOrDeviceSpec; ceph/ceph-csi#3873;
    torvalds/linux:drivers/block/rbd.c#do_rbd_remove.
    """
    volume = volume_of(find(cluster, PVC, namespace, claim), cluster)
    if volume is None or volume.at("spec", "volumeMode").text != "Block":
        return False
    csi = volume.at("spec", "csi")
    mounter, others, options = (csi["volumeAttributes"][name].text or "" for name in _OF_RBD)
    of_kernel = mounter in ("", "rbd") and others in ("", "false") and "force" not in options
    return of_kernel and (csi["driver"].text or "").endswith("rbd.csi.ceph.com")


# --- claims that are not bound --------------------------------------------------------------------

_STARTS_WITHOUT: Final = Version(1, 6)
"""The release from which a start does not wait for such a claim: the guest runs without the volume
until the claim is bound. A migration waits for the pod that attaches it on the target.

Sources: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/datavolumes.go#areDataVolumesReady (commit
9508dbb468), :pkg/virt-controller/services/rendervolumes.go#hotplugVolumes,
:pkg/virt-controller/watch/migration/migration.go#createAttachmentPod.
"""


def awaited_claims(vmi: Object, cluster: Cluster, *, moves: bool) -> tuple[str, ...]:
    """Return the claims of hotplugged volumes that a next pod of a VMI needs."""
    found = tuple(launcher_pod.attached_claims(vmi["spec"]))
    if moves or not found or not versions.has_release(cluster, _STARTS_WITHOUT):
        return found
    return tuple(name for name in found if not _is_broken(vms.namespace_of(vmi), name, cluster))


def _is_broken(namespace: str, name: str, cluster: Cluster) -> bool:
    """Return whether no pod that mounts a claim is scheduled at all, as far as is known."""
    try:
        return bool(volumes.claim(cluster, namespace, name).fault)
    except Unseen:
        return False


def keeps_off(namespace: str, vmi: str, claim: str, cluster: Cluster) -> bool:
    """Return whether a VM that is stopped may stay off for a broken claim: not if it is of a
    hotplugged volume alone, and the release starts without that.
    """
    own = find(cluster, VMI, namespace, vmi)
    if own is None or claim in launcher_pod.claims(own["spec"]):
        return True
    return claim in awaited_claims(own, cluster, moves=False) or claim not in awaited_claims(
        own, cluster, moves=True
    )
