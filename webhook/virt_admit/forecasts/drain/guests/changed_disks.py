"""VMs that name other disks than their running guests use: their next start boots another disk,
or an empty one.

Whatever restarts such a VM, or lets a drain shut it down, loses what the guest has written. So no
remedy may do that before the VM names the claims of its guest again.
``updateVolumesStrategy: Replacement`` asks for that restart, and a guest writes nothing to a
CD-ROM, so neither keeps a VM from one. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go #handleVolumeUpdateRequest (RestartRequired
with the error of the validation), #startVMI;
pkg/virt-controller/watch/volume-migration/volume-migration.go#ValidateVolumes,
#ValidateVolumesUpdateMigration (the claim of the persistent state is left out since v1.4.1,
kubevirt/kubevirt#13621); pkg/storage/backend-storage (name of that claim).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import about, json_patch, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import KUBEVIRT, VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.model.messages import command_of, cut, cut_middle

_NAMES: Final = ("name", "persistentVolumeClaim.claimName", "dataVolume.name")
_CDROMS: Final = ("domain.devices.disks.name", "domain.devices.disks.cdrom")
DISK_READS: Final[Reads] = {
    VM: (
        *(f"spec.template.spec.volumes.{name}" for name in _NAMES),
        *(f"spec.template.spec.{name}" for name in _CDROMS),
        "spec.dataVolumeTemplates.metadata.name",
        "spec.updateVolumesStrategy",
        "status.volumeUpdateState",
        *CONDITIONS,
    ),
    VMI: (
        "metadata.ownerReferences",
        "spec.volumes",
        *(f"spec.{name}" for name in _CDROMS),
        "status.phase",
        *CONDITIONS,
    ),
    KUBEVIRT: (),
}
"""The fields that ``brief``, ``command``, ``endangered`` and ``words`` read. The webhook keeps
them, of volumes names alone.
"""

READS: Final[Reads] = {
    VM: (
        *DISK_READS[VM],
        *(
            "spec.template.spec.domain.devices.tpm.persistent",
            "spec.template.spec.domain.firmware.bootloader.efi.persistent",
            "status.conditions.message",
        ),
    ),
    VMI: DISK_READS[VMI],
    KUBEVIRT: (),
}
"""The fields that the module reads."""


def of_judged_vm(reads: Reads) -> Reads:
    """Return fields for a rule about VMs: the disks are those of the VM that is judged,
    so none are kept of others.
    """
    disks = {f"spec.template.spec.{name}" for name in _CDROMS}
    return {**reads, VM: tuple(field for field in reads[VM] if field not in disks)}


class ChangedDisk(NamedTuple):
    """A volume for which a VM names another claim than its running VMI."""

    named: Field
    """The name of the claim in the VM: the next start uses it."""
    used: str
    """The claim to which the guest writes now."""
    volume: Field
    """The volume in the VM."""
    running: Field
    """The volume in the VMI."""


def of_vm(vm: Object, cluster: Cluster) -> tuple[ChangedDisk, ...]:
    """Return the volumes for which a VM names other claims than its running VMI.

    Raises:
        Unseen: its VMI cannot be read.
    """
    vmi = cluster.get(VMI, vms.namespace_of(vm), vm.name)
    return tuple(_differing(vm, vmi)) if vmi is not None else ()


def of_either(obj: Object, cluster: Cluster) -> tuple[ChangedDisk, ...]:
    """Return the volumes for which a VM names other claims than its VMI,
    to which KubeVirt does not copy them.

    ``obj`` is one of both. Empty also where the other one cannot be read, and for all other kinds.
    """
    found = _compared(obj, cluster)
    return () if found.copied else found.changed


class _Compared(NamedTuple):
    """The volumes of a VM and of its VMI that differ."""

    vm: Object | None = None
    changed: tuple[ChangedDisk, ...] = ()
    copied: bool | None = False
    """Whether KubeVirt copies them. None: not known."""


def _compared(obj: Object, cluster: Cluster) -> _Compared:
    """Compare a VM or a VMI with the other one."""
    try:
        vm = (
            obj
            if kinds.of(obj) is VM
            else vmis.owner_vm(obj, cluster)
            if kinds.of(obj) is VMI
            else None
        )
        vmi = cluster.get(VMI, vms.namespace_of(obj), obj.name) if vm is obj else obj
    except Unseen:
        return _Compared()
    changed = tuple(_differing(vm, vmi)) if vm is not None and vmi is not None else ()
    if vm is None or vmi is None or not changed:
        return _Compared()
    try:
        copied = why_not_copied(vm, vmi, cluster) is None
    except Unseen:
        return _Compared(vm, changed, None)
    return _Compared(vm, changed, copied) if copied or not is_replacement(vm) else _Compared()


def is_replacement(vm: Object) -> bool:
    """Return whether a VM asks for other disks at its next start, without a copy."""
    return vms.vm_spec(vm)["updateVolumesStrategy"].text == "Replacement"


def _differing(vm: Object, vmi: Object) -> Iterator[ChangedDisk]:
    if vmi.deleted or vmi.ended:
        return
    if (vmis.owner(vmi, "VirtualMachine") or vm.name) != vm.name:
        return
    running = {volume["name"].text: volume for volume in vmi.at("spec", "volumes").items()}
    disks = (disk for spec in (vms.vmi_spec(vm), vmi["spec"]) for disk in _disks(spec))
    cdroms = {disk["name"].text for disk in disks if disk["cdrom"].present}
    for volume in vms.vmi_spec(vm)["volumes"].items():
        if volume["name"].text in cdroms:
            continue
        own = running.get(volume["name"].text)
        named, used = _claim(volume), _claim(own).text if own is not None else None
        if own is not None and named.text and used and named.text != used:
            yield ChangedDisk(named, used, volume, own)


def _disks(spec: Field) -> Iterator[Field]:
    return spec["domain"]["devices"]["disks"].items()


def _claim(volume: Field) -> Field:
    """Return the name of a volume's claim. A data volume has the name of its claim."""
    return next(
        (volume[kind][name] for kind, name in _CLAIMS if volume[kind].is_map),
        volume["persistentVolumeClaim"],
    )


_CLAIMS: Final = (("persistentVolumeClaim", "claimName"), ("dataVolume", "name"))


# --- why nothing is copied ------------------------------------------------------------------------


def why_not_copied(vm: Object, vmi: Object, cluster: Cluster) -> str | None:
    """Return why KubeVirt does not copy the disks of a VMI to those that its VM names; None: it
    does, or does so next.

    Raises:
        Unseen: that rests on the status of the VM or on KubeVirt's roll-out strategy, which cannot
            be read.
    """
    if vmi.is_true("VolumesChange"):
        return None
    stored = vm if vm["status"].present else cluster.get(VM, vms.namespace_of(vm), vm.name)
    if (
        stored is not None
        and stored.at("status", "volumeUpdateState", "volumeMigrationState").present
    ):
        return None
    if vms.vm_spec(vm)["updateVolumesStrategy"].text != "Migration":
        return "updateVolumesStrategy is not Migration"
    if stored is not None and stored.is_true("RestartRequired"):
        return refusal(stored, cluster) or "it has RestartRequired"
    kubevirt = configuration.kubevirt(cluster)
    staged = (
        kubevirt is not None
        and kubevirt.at("spec", "configuration", "vmRolloutStrategy").text == "Stage"
    )
    return "vmRolloutStrategy is Stage" if staged else None


def refusal(vm: Object, cluster: Cluster) -> str:
    """Return why KubeVirt refuses the copy that a VM asks for, by its condition RestartRequired;
    empty: it does not say.
    """
    said = vm.condition("RestartRequired")["message"].words
    kept = _KEPT.search(said)
    if kept is None:
        return f"KubeVirt says: {cut_middle(said, _LONGEST)}" if said else ""
    if not kept[1].startswith(_STATE):
        return (
            f"volume {show(kept[1])} is ReadWriteOnce and not part of the move, so KubeVirt "
            "refuses it"
        )
    since = Feature.STATE_MOVES.since
    moves = (
        "and not part of the move"
        if versions.has_release(cluster, since)
        else f"which KubeVirt moves from {since} on"
    )
    return f"claim {show(kept[1])} with its {_state(vm)} is ReadWriteOnce, {moves}"


def _state(vm: Object) -> str:
    """Return what the claim of the persistent state of a VM holds."""
    domain = vms.vmi_spec(vm)["domain"]
    tpm = domain["devices"]["tpm"]["persistent"].boolean is True
    efi = domain["firmware"]["bootloader"]["efi"]["persistent"].boolean is True
    return (
        f"persistent {'TPM' if tpm and not efi else 'EFI' if efi and not tpm else 'TPM and EFI'} "
        "state"
    )


_KEPT: Final = re.compile(r"[Tt]he volume (\S{1,253}) is RWO and not included")
_STATE: Final = "persistent-state-for-"
_LONGEST: Final = 120


DO_NOT: Final = "do not restart"
"""What the remedy begins with, which goes before all others."""

# --- what to say ----------------------------------------------------------------------------------


def words(changed: tuple[ChangedDisk, ...]) -> str:
    """Return what the next start does: ``its next start boots 'b' instead of 'a'``; empty:
    the same disks.
    """
    return (
        f"its next start boots {show(changed[0].named.text)} instead of {show(changed[0].used)}"
        if changed
        else ""
    )


def brief(obj: Object, cluster: Cluster) -> str:
    """Return the remedy for a message that has little room, as a sentence; empty:
    none is needed.
    """
    found = _compared(obj, cluster)
    if not found.changed:
        return ""
    claim = show(found.changed[0].used)
    until = (
        f"KubeVirt has copied claim {claim}"
        if found.copied
        else f"the VM names claim {claim} of its guest again"
    )
    return f"Do not restart it before {until}."


def endangered(running: Iterable[Object], cluster: Cluster) -> str:
    """Return the same for several VMIs, about the first of them with other disks; empty:
    none has them.
    """
    every = ((vmi.full_name, _compared(vmi, cluster)) for vmi in running)
    first, found = next(
        ((name, found) for name, found in every if found.changed), ("", _Compared())
    )
    why = "while its disks are copied" if found.copied else "it would boot another disk"
    return f"Keep {cut(first, _NAME)} running: {why}." if first else ""


_NAME: Final = 25


def remedy(obj: Object, cluster: Cluster) -> str:
    """Return the only remedy that a VM or a VMI with other disks may get, with its command; empty:
    it has none.
    """
    vm, changed, copied = _compared(obj, cluster)
    if vm is None:
        return ""
    begin = f"{DO_NOT} it, or let a drain shut it down"
    if copied:
        return (
            f"{begin}, before KubeVirt has copied {show(changed[0].used)} to "
            f"{show(changed[0].named.text)}"
        )
    refused = vm.is_true("RestartRequired") and refusal(vm, cluster)
    why = f" (nothing is copied: {refused})" if refused else ""
    advice = f"{begin}: {words(changed)}{why}. Name {show(changed[0].used)} in the VM again"
    return typed(advice, command(obj, cluster), _copy_later(vm, cluster) if refused else "")


def _copy_later(vm: Object, cluster: Cluster) -> str:
    """Return how the disks are copied once the VM names the former ones again; empty: KubeVirt
    refuses that for another cause than its release.
    """
    kept = _KEPT.search(vm.condition("RestartRequired")["message"].words)
    since = Feature.STATE_MOVES.since
    if kept is None or not kept[1].startswith(_STATE) or versions.has_release(cluster, since):
        return ""
    return (
        f"then update KubeVirt to {since} or later and ask for the copy again, or clone the disk "
        "while the VM is stopped"
    )


def safe(other: str, obj: Object, cluster: Cluster) -> str:
    """Return another remedy about a VM or a VMI,
    behind ``remedy`` where it would start the VM with other disks.

    Its commands that end the guest are left out.
    """
    first = remedy(obj, cluster) if _ends(other, obj) else ""
    if not first or other.startswith(DO_NOT):
        return first or other
    see, repair = command_of(other), command_of(first)
    words_of = other.replace(f": {see}", f" ({see})", 1) if see else other.rstrip(".")
    then = _IN_WORDS.sub(lambda found: "" if _ends(found[0], obj) else found[0], words_of)
    return typed(first.removesuffix(f": {repair}"), repair, f"after that, {then}")


def _ends(text: str, obj: Object) -> bool:
    """Return whether what a text says ends the guest of a VM, now or with a drain."""
    commanded = any(found[1] == obj.name for found in _BY_COMMAND.finditer(text))
    return commanded or _RESTARTS.search(text) is not None


_RESTARTS: Final = re.compile(
    r"\b(?<!do not )(?:[Rr]estart (?:it|the VM)\b|its restart\b|stop (?:it|the VM)\b|shut "
    r"(?:it|the VM|the guest) down\b|evictionStrategy\b|LiveMigrateIfPossible\b|Evict\b)"
)
"""Other parts that are restarted are not meant."""
_BY_COMMAND: Final = re.compile(r"\bvirtctl (?:restart|stop|start) ([\w.-]+)")
_IN_WORDS: Final = re.compile(
    r" \((?:kubectl|virtctl) [^()]*\)|(?::| &&) virtctl (?:restart|stop|start) [\w.-]+"
    r"(?: -n [\w-]+)?"
)


def command(obj: Object, cluster: Cluster) -> str:
    """Return the command with which the VM of an object names the disks of its guest again; empty:
    it names them.

    Empty also where KubeVirt copies them, or may do so: the command would cancel the copy.
    """
    vm, changed, copied = _compared(obj, cluster)
    if vm is None or copied is not False:
        return ""
    templates = {
        item["metadata"]["name"].text for item in vms.vm_spec(vm)["dataVolumeTemplates"].items()
    }
    # KubeVirt refuses a template that no volume uses
    if any(each.named.text in templates for each in changed):
        return about("edit", vm, VM)
    steps = [step for each in changed for step in _steps(each)]
    return json_patch(VM, vm.name, vms.namespace_of(vm), steps)


def _steps(changed: ChangedDisk) -> tuple[Patch, Patch]:
    """Return the changes that give a VM the volume of its VMI back,
    if that is still the volume at this index.
    """
    path = changed.volume.path
    return Patch("test", path / "name", changed.volume["name"].text), Patch(
        "replace", path, changed.running.value
    )
