"""The claim of persistent vTPM and EFI state that gets no volume, and what ends that.

KubeVirt makes this claim by itself, with a file system, from ``vmStateStorageClass``. Before 1.3 it
asks for ReadWriteMany whatever the class can give; later its StorageProfile decides. Sources:
kubevirt/kubevirt:pkg/storage/backend-storage/backend-storage.go#CreateIfNeeded (1.2),
#getAccessMode (1.3), issue #10940.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.commands import typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, PVC, STORAGE_PROFILE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.kubevirt.settings import configuration, versions, written_settings
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.kubevirt.settings.written_settings import WrittenSetting
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.pods import claim_names

_SOURCES: Final = ("dataSource", "dataSourceRef", "selector")
READS: Final[Reads] = {
    KUBEVIRT: (),
    HCO: (),
    STORAGE_PROFILE: (),
    PVC: (*(f"spec.{field}" for field in _SOURCES), "spec.storageClassName", "spec.volumeName"),
}
_BY_PROFILE: Final = Version(1, 3)
_FILESYSTEM: Final = "Filesystem"


def of_pod(pod: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the claims of such state that a pod waits for."""
    for name in claim_names(pod):
        claim = find(cluster, PVC, pod.namespace, name)
        if claim is not None and is_empty(claim):
            yield claim


def is_empty(claim: Object) -> bool:
    """Return whether a claim of such state has no volume, and gets no data from a restore."""
    spec = claim["spec"]
    return (
        claim.name.startswith(storage.STATE)
        and not spec["volumeName"].text
        and not any(spec[field].present for field in _SOURCES)
    )


def remedy(claim: Object, cluster: Cluster) -> str:
    """Return how such a claim gets a volume: a claim is never changed, and an empty one made
    again.
    """
    own = configuration.known_or_none(configuration.kubevirt, cluster)
    place = written_settings.holder(WrittenSetting.STATE_CLASS, own, cluster)
    named = claim.at("spec", "storageClassName").text or ""
    shared = storage.shared_class(cluster)
    where = place.words if place else "vmStateStorageClass of KubeVirt, or of its HyperConverged,"
    if shared and shared != named:
        first, command = f"set {where} to {shared}", place.patch(shared) if place else ""
    else:
        first = f"set {where} to a class whose file systems several nodes mount (CephFS, NFS)"
        command = place.edit if place else ""
    then = (
        f"; then stop the VM, delete claim {claim.name}, which has no volume and no data, and "
        "start the VM"
    )
    return typed(f"{first}{_alternative(named, cluster)}{then}", command)


def _alternative(storage_class: str, cluster: Cluster) -> str:
    """Return what lets KubeVirt ask for what the class gives, as another way; empty: nothing."""
    profile = find(cluster, STORAGE_PROFILE, "", storage_class)
    if profile is None:
        return ""
    if versions.has_release(cluster, _BY_PROFILE):
        return (
            f", or let spec.claimPropertySets of StorageProfile {storage_class} name what its "
            f"provisioner can give with volumeMode {_FILESYSTEM}"
        )
    modes = {
        mode.text
        for each in profile.at("status", "claimPropertySets").items()
        if each["volumeMode"].text == _FILESYSTEM
        for mode in each["accessModes"].items()
    }
    if "ReadWriteOnce" not in modes or storage.SHARED in modes:
        return ""
    return (
        f", or update KubeVirt to {_BY_PROFILE} or later, which asks this class for ReadWriteOnce"
    )
