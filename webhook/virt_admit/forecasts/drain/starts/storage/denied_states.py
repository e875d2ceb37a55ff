"""Claims of persistent vTPM and EFI state that KubeVirt is not allowed to create.

virt-controller creates this claim by itself before the pod of a VM, and tries again without end.
The webhook of Harvester 1.7.0 denies each claim of the class that Harvester gives KubeVirt for it.
Sources: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/storage.go (FailedBackendStorageCreate),
pkg/storage/backend-storage/backend-storage.go#createPVC;
harvester/harvester:pkg/webhook/resources/persistentvolumeclaim/validator.go#Create (1.7.0, 1.7.1),
issue 9919.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HARVESTER_SETTING, HCO, KUBEVIRT, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration, written_settings
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.kubevirt.settings.written_settings import SettingHolder, WrittenSetting
from virt_admit.model.lookups import fields

READS: Final[Reads] = {
    KUBEVIRT: (),
    HCO: (),
    HARVESTER_SETTING: ("value",),
    VMI: ("spec.domain", "status.conditions.reason", *CONDITIONS),
}
WHAT: Final = "the claim for its persistent state"
_REASON: Final = "FailedBackendStorageCreate"
_OF_HARVESTER: Final = "validator.harvesterhci.io"
_RESERVED: Final = "reserved storage class"
_DENYING, _FIXED = Version(1, 7, 0), Version(1, 7, 1)
_PERSISTENT: Final = {
    "devices.tpm": ("devices", "tpm"),
    "firmware.bootloader.efi": ("firmware", "bootloader", "efi"),
}
"""The fields of a domain whose ``persistent`` asks for the claim."""


def is_of(vmi: Object) -> bool:
    """Return whether KubeVirt cannot create that claim for a VMI."""
    return vmi.condition("Synchronized")["reason"].text == _REASON


def words(vmi: Object, cluster: Cluster) -> str:
    """Return which claim that is, with what asks for it."""
    asked, named = " and ".join(f"{each}.persistent" for each in _asked(vmi)), _class(cluster)
    by = f" ({asked} of the VM)" if asked else ""
    of = f" in StorageClass {named}, the vmStateStorageClass of KubeVirt" if named else ""
    return f"{WHAT}{by}{of}"


def remedy(vmi: Object, webhook: str, said: str, cluster: Cluster) -> str:
    """Return what lets KubeVirt create such a claim that a webhook denies, or do without."""
    place, field = _holder(cluster), "vmStateStorageClass of KubeVirt"
    set_class = f"set {place.words if place else field} to a StorageClass that it accepts"
    asked = " and ".join(f"{each}.persistent" for each in _asked(vmi)) or "the persistent state"
    without = (
        f"turn {asked} of the VM off, after which its guest loses such state at each stop (keys of "
        "BitLocker)"
    )
    release = parse_version(fields(cluster, HARVESTER_SETTING, "", "server-version")["value"].text)
    denies = release is not None and _DENYING <= release < _FIXED
    if webhook == _OF_HARVESTER and _RESERVED in said and denies:
        update = (
            f"update Harvester {release} to {_FIXED} or later, whose webhook does not deny "
            "KubeVirt this class"
        )
        edit = f" ({place.edit})" if place else ""
        return f"{update}; until then {set_class}{edit}, or {without}"
    first = f"let webhook {webhook} accept the claims that virt-controller creates in"
    return typed(
        f"{first} {vms.namespace_of(vmi)}, or {set_class}, or {without}",
        place.edit if place else "",
    )


def _asked(vmi: Object) -> list[str]:
    domain = vms.vmi_spec(vmi)["domain"]
    return [
        field
        for field, path in _PERSISTENT.items()
        if domain.at(*path, "persistent").boolean is True
    ]


def _class(cluster: Cluster) -> str:
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    if found is None:
        return ""
    return found.at("spec", "configuration", "vmStateStorageClass").text or ""


def _holder(cluster: Cluster) -> SettingHolder | None:
    own = configuration.known_or_none(configuration.kubevirt, cluster)
    return written_settings.holder(WrittenSetting.STATE_CLASS, own, cluster)
