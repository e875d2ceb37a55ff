"""Access modes of the claims of a VMI, including claims that do not exist yet.

Sources: kubevirt/containerized-data-importer: pkg/controller/datavolume/util.go,
pkg/controller/common/util.go#GetStorageClassByNameWithVirtFallback,
#GetPlatformDefaultStorageClass.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import AbsentObject, Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import (
    DATA_VOLUME,
    POOL,
    PVC,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem, ProblemCause

OVERHEAD: Final = "0.06"
"""The share of a claim that CDI leaves to its file system, by default
(kubevirt/containerized-data-importer:pkg/common/common.go#DefaultGlobalOverhead).
"""
SHARED: Final = "ReadWriteMany"
"""The only access mode that lets two nodes write at once, as a migration requires."""

DEFAULT_FOR_VMS: Final = "storageclass.kubevirt.io/is-default-virt-class"
DEFAULT_FOR_ALL: Final = "storageclass.kubernetes.io/is-default-class"


READS: Final[Reads] = {
    PVC: ("spec.accessModes",),
    DATA_VOLUME: (
        "spec.contentType",
        *(
            f"spec.{block}.{key}"
            for block in ("pvc", "storage")
            for key in ("accessModes", "volumeMode", "storageClassName")
        ),
    ),
    STORAGE_PROFILE: (),
    STORAGE_CLASS: (),
}
"""The fields that ``access`` reads."""


class Access(NamedTuple):
    """The access modes of a claim."""

    modes: tuple[str, ...]
    storage_class: str = ""
    """The storage class whose profile determines them; empty: they are explicit."""

    @property
    def shared(self) -> bool:
        return SHARED in self.modes


def access(vmi: ExpandedVmi, claim: str, cluster: Cluster) -> Access:
    """Return the access modes of a claim of a VMI.

    The sources are, in this order, the claim itself, the template of the object that creates it,
    and the data volume that creates it. Each member of a pool gets its own claims from the
    templates of the pool, ``<template>-<index>``. A claim with exactly the name of the template
    therefore does not belong to the pool.

    Raises:
        Unseen: no source is known, or it refers to an object that cannot be read.
    """
    obj = vmi.obj
    template = vms.disk_template(vmi.obj, claim)
    if template is None or kinds.of(obj) is not POOL:
        existing = _claim(obj, claim, cluster)
        if existing is not None:
            return existing
    if template is not None:
        return _of_data_volume(template["spec"], vmi, claim, cluster)
    volume = _look_up(DATA_VOLUME, obj, claim, cluster)
    if volume is not None:
        return _of_data_volume(volume["spec"], None, claim, cluster)
    raise Unseen(f"{PVC} {vms.namespace_of(obj)}/{claim}")


def _claim(obj: Object, name: str, cluster: Cluster) -> Access | None:
    existing = _look_up(PVC, obj, name, cluster)
    modes = _modes(existing.at("spec", "accessModes")) if existing is not None else ()
    return Access(modes) if modes else None


def _look_up(kind: Kind, obj: Object, name: str, cluster: Cluster) -> Object | None:
    """Return the object; None if it does not exist or cannot be read,
    so that the caller tries the next source.
    """
    return find(cluster, kind, vms.namespace_of(obj), name)


def _modes(field: Field) -> tuple[str, ...]:
    return tuple(item.text for item in field.items() if item.text)


def _of_data_volume(spec: Field, vmi: ExpandedVmi | None, claim: str, cluster: Cluster) -> Access:
    """Return the modes of the claim that a data volume creates: explicit ones,
    or those of a storage profile.

    ``vmi`` is the owner of the template, whose preference may name a storage class.
    """
    said = spec["pvc"] if spec["pvc"].present else spec["storage"]
    modes = _modes(said["accessModes"])
    if modes:
        return Access(modes)
    if not said.present or spec["pvc"].present:  # CDI consults no profile for spec.pvc
        raise Unseen(f"access modes of data volume {claim}")
    name = said["storageClassName"].text
    if name is None and vmi is not None:
        name = _preferred_class(vmi)
    if name is None:
        name = _default_class(spec["contentType"].value != "archive", cluster)
    return Access(_of_profile(name, said["volumeMode"].text or None, cluster), name)


def _preferred_class(vmi: ExpandedVmi) -> str | None:
    if vmi.preference_unseen:
        raise Unseen(vmi.preference_unseen)
    return vmi.preferred_storage_class


def _of_profile(storage_class: str, volume_mode: str | None, cluster: Cluster) -> tuple[str, ...]:
    """Return the modes of the profile's first set, or of its first one with the volume mode."""
    profile = cluster.get(STORAGE_PROFILE, "", storage_class)
    if profile is not None:
        for each in profile.at("status", "claimPropertySets").items():
            if volume_mode is None or each["volumeMode"].value == volume_mode:
                modes = _modes(each["accessModes"])
                if modes:
                    return modes
                break
    raise Unseen(
        f"access modes of {STORAGE_PROFILE} "
        f"{storage_class}{NONE_THERE if profile is not None else ''}"
    )


NONE_THERE: Final = ", which names none"
"""How the words about an object end that was read, and does not say what is sought."""


NO_DEFAULT: Final = AbsentObject(f"a default {STORAGE_CLASS.kind}, which does not exist")
"""What a claim without a class lacks where the classes were read, and none of them is marked."""


class _Defaults(NamedTuple):
    for_vms: str | None
    for_all: str | None


def _default_class(vm_disk: bool, cluster: Cluster) -> str:
    defaults = cluster.cached(_defaults)
    name = (defaults.for_vms if vm_disk else None) or defaults.for_all
    if name is None:
        raise Unseen(
            f"the default among {STORAGE_CLASS}" if unlisted(cluster, STORAGE_CLASS) else NO_DEFAULT
        )
    return name


def _defaults(cluster: Cluster) -> _Defaults:
    """Return the default classes.

    Storage classes are read all or none, so the known ones count as all.
    """
    return _Defaults(marked(DEFAULT_FOR_VMS, cluster), marked(DEFAULT_FOR_ALL, cluster))


def marked(annotation: str, cluster: Cluster) -> str | None:
    """Return the newest class with this annotation, of equally old ones the first by name."""
    newest = max(all_marked(annotation, cluster), key=lambda each: each.created, default=None)
    return newest.name if newest is not None else None


def all_marked(annotation: str, cluster: Cluster) -> list[Object]:
    """Return the known classes with this annotation by name."""
    known = cluster.known(STORAGE_CLASS)
    marked = (each for each in known if each.annotations.get(annotation) == "true")
    return sorted(marked, key=lambda each: each.name)


# --- vTPM and EFI state ---------------------------------------------------------------------------

STATE: Final = "persistent-state-for"
"""How the names of the claim and the volume of vTPM and EFI state begin
(kubevirt/kubevirt:pkg/storage/backend-storage/backend-storage.go#PVCPrefix).
"""


def state_claim(obj: Object) -> str:
    """Return the claim of vTPM and EFI state, as the status of a VMI names it, else as KubeVirt did
    before 1.4; empty: members of pools and replica sets have other names.
    """
    for status in obj.at("status", "volumeStatus").items():
        claim = status.at("persistentVolumeClaimInfo", "claimName").text or ""
        if claim.startswith(STATE) or (status["name"].text or "").startswith(STATE):
            return claim
    return f"{STATE}-{obj.name}" if kinds.of(obj) in (kinds.VM, kinds.VMI) else ""


_SWTPM: Final = "the running swtpm does not support migration with shared storage"


def held_by_swtpm(vmi: Object, failure: str) -> Problem | None:
    """Return why a guest cannot leave its node until it stops, from the words of a failed
    migration; None: it failed for another reason.

    libvirt looks before each move at how the swtpm of the guest was started: one older than 0.8
    has no option for it (libvirt:src/qemu/qemu_migration.c#qemuMigrationSrcIsAllowed,
    stefanberger/swtpm#732, harvester/harvester#9181).
    """
    if _SWTPM not in failure:
        return None
    claim, owner = state_claim(vmi), vmi.owned_by(kinds.VM.kind)
    reason = f"{_SWTPM}{f'; its vTPM is on claim {claim}' if claim else ''}"
    if not owner:
        return Problem(
            reason,
            "save the keys of its vTPM from inside the guest before it ends: no VirtualMachine "
            "owns it, so the claim ends with it",
            ProblemCause.MIGRATION_FAILS,
        )
    stop, start = (virtctl(verb, owner, vms.namespace_of(vmi)) for verb in ("stop", "start"))
    remedy = typed(
        "shut the VM down for the drain, which keeps its vTPM, and start it on another node "
        f"({start}); never remove the vTPM or that claim, which loses its keys (BitLocker). It can "
        "migrate with a virt-launcher that has swtpm 0.8 or newer (Harvester 1.6)",
        stop,
    )
    return Problem(reason, remedy, ProblemCause.MIGRATION_FAILS, command=stop)


def move_of_state(claim: Object, cluster: Cluster) -> str:
    """Return how the claim of such state becomes shared, as an alternative; empty: no class whose
    file systems several nodes mount is known.

    KubeVirt takes ``vmStateStorageClass``, else the default class, when it makes the claim
    (backend-storage.go#getStorageClass).
    """
    if not (shared := shared_class(cluster)):
        return ""
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    said = found.at("spec", "configuration", "vmStateStorageClass") if found is not None else None
    unset = "" if said is None or said.text else " (not set: the default class counts)"
    return (
        f", or set vmStateStorageClass{unset} to {shared} instead of "
        f"{claim.at('spec', 'storageClassName').text or 'another class'} and, with the VM off, "
        "copy that claim there under the same name (a new empty one loses the keys of the vTPM)"
    )


def shared_class(cluster: Cluster) -> str:
    """Return a class whose file systems several nodes mount, by its StorageProfile; empty: none is
    known.
    """
    profiles = sorted(cluster.known(STORAGE_PROFILE), key=lambda each: each.name)
    return next((each.name for each in profiles if _shares_files(each)), "")


def _shares_files(profile: Object) -> bool:
    return any(
        each["volumeMode"].text == "Filesystem" and SHARED in _modes(each["accessModes"])
        for each in profile.at("status", "claimPropertySets").items()
    )
