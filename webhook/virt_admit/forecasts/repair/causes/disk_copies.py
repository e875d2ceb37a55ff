"""Disks that one node alone can use: copied, while the guest runs, to storage that two nodes can
use at the same time.

Sources: kubevirt/kubevirt:pkg/storage/volume-migration/volume-migration.go#ValidateVolumes,
#ValidateVolumesUpdateMigration; pkg/virt-controller/watch/vm/vm.go#handleVolumeUpdateRequest;
kubevirt/kubevirt-migration-controller:
internal/controller/storagemig/vm.go#prepareVMForStorageMigration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.repair import disk_sizes, storage_classes
from virt_admit.forecasts.repair.controllers import TEMPLATE
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    CostClass,
    DiskCopy,
    FieldEdit,
    ObjectChange,
    ObjectRef,
    PlannedCheck,
    PlanStage,
    RepairStep,
    StepCost,
    TakesEffect,
)
from virt_admit.forecasts.repair.wishes import Wishes
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, PVC, VM, VMI, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migratability, vms
from virt_admit.model.kubevirt.settings import configuration, live_updates
from virt_admit.model.kubevirt.settings.versions import Version, has_release, hco_release
from virt_admit.model.lookups import find

STORAGE_PLAN: Final = kinds.guess(
    "migrations.kubevirt.io/v1alpha1", "VirtualMachineStorageMigrationPlan"
)
STORAGE_MIGRATION: Final = kinds.guess(
    "migrations.kubevirt.io/v1alpha1", "VirtualMachineStorageMigration"
)
_CONTROLLER_SINCE: Final = Version(1, 17)
"""The first release of HyperConverged with the migration controller."""
_BY_HAND_SINCE: Final = Version(1, 6)
_CRD_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""The pattern of names in the definition of the storage migration plan."""
_MIGRATION: Final = "Migration"


class Volume(NamedTuple):
    """A volume of the VM and the claim that it uses."""

    place: int
    name: str
    claim: str
    source: str
    """``persistentVolumeClaim`` or ``dataVolume``."""


def volumes(vm: Object) -> Iterator[Volume]:
    """Yield the volumes of a VM that are claims."""
    for index, volume in enumerate(vms.vmi_spec(vm)["volumes"].items()):
        claim = migratability.claim_of(volume)
        if claim is not None and claim.text and volume["name"].text:
            source = "dataVolume" if volume["dataVolume"].is_map else "persistentVolumeClaim"
            yield Volume(index, volume["name"].text, claim.text, source)


def copies(
    vmi: Object, vm: Object, claims: Iterable[str], cluster: Cluster, wishes: Wishes
) -> list[DiskCopy] | str:
    """Return how these claims of a running VM are copied, or why they cannot be."""
    refused = _refusal(vmi, vm, cluster, wishes)
    if refused:
        return refused
    namespace = vms.namespace_of(vmi)
    found: list[DiskCopy] = []
    for claim in dict.fromkeys(claims):
        one = _copy(claim, vm, namespace, cluster, wishes)
        if isinstance(one, str):
            return one
        found.append(one)
    return found


def _refusal(vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes) -> str:
    """Return why no volume of a VM can be copied while it runs; empty: nothing known does."""
    if not wishes.copies(vm):
        return "--may-copy does not select it"
    if not has_release(cluster, _BY_HAND_SINCE):
        return f"KubeVirt copies volumes of a running VM since {_BY_HAND_SINCE}"
    if vm.controller is not None:
        return "a pool makes its disks from templates"
    if vm.is_true("RestartRequired"):
        return (
            "it has RestartRequired, so the copy would not start and the next restart would boot "
            "an empty disk"
        )
    if _stage_is_fixed(cluster):
        return "HyperConverged writes the roll-out strategy Stage, with which no copy starts"
    if vm.at("status", "snapshotInProgress").present:
        return "a snapshot of it is in progress, during which its volumes cannot be changed"
    if vm.at("status", "volumeUpdateState", "volumeMigrationState").present:
        return "a volume migration of it is in progress"
    if vmi.at("status", "phase").text != "Running":
        return "it does not run"
    devices = vms.vmi_spec(vm).at("domain", "devices")
    names = {volume.name for volume in volumes(vm)}
    for disk in devices["disks"].items():
        if disk["name"].text in names and (disk["shareable"].boolean or disk["lun"].is_map):
            return (
                f"disk {disk['name'].text} is shareable or a LUN, which KubeVirt does not copy live"
            )
    for filesystem in devices["filesystems"].items():
        if filesystem["name"].text in names:
            return (
                f"volume {filesystem['name'].text} is a virtiofs file system, which KubeVirt does "
                "not copy live"
            )
    return ""


def _stage_is_fixed(cluster: Cluster) -> bool:
    """Return whether changes of VMs are staged, and a patch of KubeVirt would be reverted."""
    written = configuration.known_or_none(configuration.hyperconverged, cluster) is not None
    return written and live_updates.is_staged(cluster)


def _copy(
    claim: str, vm: Object, namespace: str, cluster: Cluster, wishes: Wishes
) -> DiskCopy | str:
    if not any(volume.claim == claim for volume in volumes(vm)):
        return f"the VM does not name claim {claim} that its VMI uses"
    found = find(cluster, PVC, namespace, claim)
    if found is None:
        return f"claim {claim} cannot be read"
    mode = found.at("spec", "volumeMode").text or storage_classes.FILESYSTEM
    chosen = storage_classes.choose(
        found.at("spec", "storageClassName").text or "", mode, cluster, wishes.storage_class
    )
    if isinstance(chosen, str):
        return chosen
    size = disk_sizes.size(found)
    if not size:
        return f"the size of claim {claim} is not known"
    copy = _free_name(claim, namespace, cluster)
    return DiskCopy(namespace, claim, copy, chosen.name, chosen.volume_mode, size)


def _free_name(claim: str, namespace: str, cluster: Cluster) -> str:
    """Return the name of the new claim, the same in each run."""
    for number in range(1, 100):
        name = f"{claim}-shared{'' if number == 1 else f'-{number}'}"
        try:
            if all(cluster.get(kind, namespace, name) is None for kind in (PVC, DATA_VOLUME)):
                return name
        except Unseen:
            return name
    return f"{claim}-shared-100"


def steps(vm: Object, found: list[DiskCopy], cluster: Cluster) -> tuple[RepairStep, ...]:
    """Return the step that copies these disks of a VM, all of them at once,
    and what the controller leaves to do.
    """
    copying = _step(vm, found, cluster)
    left = tuple(edit for edit in _edits(vm, found) if "dataVolumeTemplates" in edit.path)
    if not copying.followed or not left:
        return (copying,)
    modes = replace(
        copying,
        id=f"{AFTER}{copying.subject.full_name}",
        title="write the access modes of the copies into dataVolumeTemplates",
        changes=(ObjectChange(copying.subject, Command.PATCH, left),),
        needs=(copying.id,),
        preconditions=copying.verify,
        verify=(),
        risk="",
        copies=(),
        followed=(),
    )
    return copying, modes


AFTER: Final = "after-copies:"


def _step(vm: Object, found: list[DiskCopy], cluster: Cluster) -> RepairStep:
    subject = ObjectRef.of(VM, vm)
    bytes_ = sum(disk_sizes.of_claim(each, cluster) for each in found)
    classes = ", ".join(dict.fromkeys(each.storage_class for each in found))
    disks = ", ".join(each.claim for each in found)
    edits = tuple(_edits(vm, found))
    controlled = _by_controller(vm, found, cluster)
    return RepairStep(
        id=f"copy:{subject.full_name}",
        stage=PlanStage.COPIES,
        title=f"copy {disks} to class {classes}",
        subject=subject,
        cost=StepCost(CostClass.COPY, gib=disk_sizes.gib(bytes_)),
        takes_effect=TakesEffect.COPY,
        changes=_storage_plan(subject, vm, found)
        if controlled
        else _by_hand(subject, found, edits),
        followed=(ObjectChange(subject, Command.PATCH, _by_itself(edits)),) if controlled else (),
        preconditions=tuple(_preconditions(subject)),
        verify=tuple(_verify(subject, controlled, _uid(vm, cluster))),
        risk=(
            "a copy that does not start leaves the VM naming an empty disk: undo at once. Keep "
            "updateVolumesStrategy until the next restart, and never set the old claims back. The "
            f"sources stay: {disks}"
        ),
        copies=tuple(found),
    )


def _uid(vm: Object, cluster: Cluster) -> str:
    vmi = find(cluster, VMI, vms.namespace_of(vm), vm.name)
    return (vmi.metadata["uid"].text or "") if vmi is not None else ""


def _edits(vm: Object, found: list[DiskCopy]) -> Iterator[FieldEdit]:
    """Yield the changes of the VM, each volume, its template and the strategy, in one patch."""
    by_claim = {each.claim: each for each in found}
    templates = vms.vm_spec(vm)["dataVolumeTemplates"]
    for volume in volumes(vm):
        copy = by_claim.get(volume.claim)
        if copy is None:
            continue
        field = vms.vmi_spec(vm)["volumes"][volume.place]
        own = dict(field.map)
        before = own.pop("persistentVolumeClaim", None) or {}
        kept = {"hotpluggable": True} if before.get("hotpluggable") else {}
        own["dataVolume"] = {"name": copy.copy, **kept}
        if "dataVolume" in field.map:
            own["dataVolume"] = {**field["dataVolume"].map, "name": copy.copy}
        yield FieldEdit((*TEMPLATE, "volumes", volume.place), own)
        for index, template in enumerate(templates.items()):
            if template.at("metadata", "name").text == volume.claim:
                yield from _template(template, index, copy)
    yield FieldEdit(("spec", "updateVolumesStrategy"), _MIGRATION)


def _template(template: Field, index: int, copy: DiskCopy) -> Iterator[FieldEdit]:
    """Yield the name, class, modes and size of the copy for a template of a data volume;
    its source stays out of sight.
    """
    path = ("spec", "dataVolumeTemplates", index)
    key = "pvc" if template.at("spec", "pvc").present else "storage"
    yield FieldEdit((*path, "metadata", "name"), copy.copy)
    yield FieldEdit((*path, "spec", key), {**template.at("spec", key).map, **_storage(copy)})


def _storage(copy: DiskCopy) -> dict[str, Any]:
    return {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": disk_sizes.quantity(copy.size)}},
        "storageClassName": copy.storage_class,
        "volumeMode": copy.volume_mode,
    }


def _by_hand(
    subject: ObjectRef, found: list[DiskCopy], edits: tuple[FieldEdit, ...]
) -> tuple[ObjectChange, ...]:
    blanks = (
        _made(
            ObjectRef(DATA_VOLUME, subject.namespace, each.copy),
            {"source": {"blank": {}}, "storage": _storage(each)},
        )
        for each in found
    )
    return (*blanks, ObjectChange(subject, Command.PATCH, edits))


def _by_controller(vm: Object, found: list[DiskCopy], cluster: Cluster) -> bool:
    """Return whether the migration controller is there and accepts these names."""
    hco = configuration.known_or_none(configuration.hyperconverged, cluster)
    release = hco_release(hco) if hco is not None else None
    names = [vm.name, *(each.copy for each in found)]
    since = release is not None and release >= _CONTROLLER_SINCE
    return since and all(map(_CRD_NAME.fullmatch, names))


def _by_itself(edits: tuple[FieldEdit, ...]) -> tuple[FieldEdit, ...]:
    """Return what the migration controller changes: volumes and template names, no access modes."""
    return tuple(
        edit for edit in edits if "dataVolumeTemplates" not in edit.path or edit.path[-1] == "name"
    )


def _storage_plan(
    subject: ObjectRef, vm: Object, found: list[DiskCopy]
) -> tuple[ObjectChange, ...]:
    """Return the objects for the migration controller."""
    by_claim = {each.claim: each for each in found}
    targets = [
        {
            "volumeName": volume.name,
            "destinationPVC": {
                "name": by_claim[volume.claim].copy,
                "storageClassName": by_claim[volume.claim].storage_class,
                "accessModes": ["ReadWriteMany"],
                "volumeMode": by_claim[volume.claim].volume_mode,
            },
        }
        for volume in volumes(vm)
        if volume.claim in by_claim
    ]
    plan, run = _of_migration(STORAGE_PLAN, subject), _of_migration(STORAGE_MIGRATION, subject)
    vms_of_plan = [{"name": subject.name, "targetMigrationPVCs": targets}]
    return (
        _made(plan, {"retentionPolicy": "keepSource", "virtualMachines": vms_of_plan}),
        _made(run, {"virtualMachineStorageMigrationPlanRef": {"name": plan.name}}),
    )


def _of_migration(kind: Kind, vm: ObjectRef) -> ObjectRef:
    return ObjectRef(kind, vm.namespace, f"virt-admit-{vm.name}"[:63].rstrip("-"))


def _made(new: ObjectRef, spec: dict[str, Any]) -> ObjectChange:
    """Return the change that makes an object."""
    manifest = {
        "apiVersion": new.kind.api_version,
        "kind": new.kind.kind,
        "metadata": {"name": new.name, "namespace": new.namespace},
        "spec": spec,
    }
    return ObjectChange(new, Command.APPLY, manifest=manifest)


def _preconditions(vm: ObjectRef) -> Iterator[PlannedCheck]:
    condition = "conditions[?(@.type=='RestartRequired')].status"
    yield PlannedCheck("the VM has no RestartRequired", _status(vm, condition), "")
    yield PlannedCheck("the VM is ready", _status(vm, "ready"), "true")
    yield PlannedCheck("no snapshot of it is in progress", _status(vm, "snapshotInProgress"), "")


_COPY_LABEL: Final = "kubevirt.io/volume-update-migration"
"""The label of the migrations that copy volumes: the name of the VM,
or the uid of the VMI for a longer name.
"""
_LONGEST_LABEL: Final = 63


def _verify(vm: ObjectRef, controlled: bool, uid: str) -> Iterator[PlannedCheck]:
    vmi = vm._replace(kind=VMI)
    if controlled:
        query = _status(_of_migration(STORAGE_MIGRATION, vm), "phase")
        yield PlannedCheck("the storage migration is completed", query, "Completed")
    else:
        label = f"{_COPY_LABEL}={vm.name if len(vm.name) <= _LONGEST_LABEL else uid}"
        yield PlannedCheck(
            "within a minute the VMI reports VolumesChange, and a migration with the label "
            f"{label} starts"
        )
        yield PlannedCheck("the copy has ended", _status(vmi, "migratedVolumes"), "")
    migratable = "conditions[?(@.type=='LiveMigratable')].status"
    yield PlannedCheck("the VMI can migrate", _status(vmi, migratable), "True")


def _status(subject: ObjectRef, field: str) -> tuple[str, ...]:
    path = f"-o=jsonpath={{.status.{field}}}"
    return "get", subject.kind.resource, subject.name, "-n", subject.namespace, path
