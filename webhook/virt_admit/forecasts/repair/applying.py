"""The cluster as steps would leave it: objects patched, and what controllers make of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_queue
from virt_admit.forecasts.repair import controllers, patching
from virt_admit.forecasts.repair.changed_cluster import ChangedCluster
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    FieldEdit,
    ObjectChange,
    ObjectRef,
    RepairStep,
    TakesEffect,
)
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    HCO,
    LIMIT_RANGE,
    PVC,
    RESOURCE_QUOTA,
    STORAGE_CLASS,
    VM,
    VMI,
    VMIM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.kubevirt.settings import configuration, migration_limits
from virt_admit.model.lookups import find, grouped
from virt_admit.model.scheduler import volumes

_EVACUATE_CANCEL: Final = "evacuate-cancel"


def applied(steps: Iterable[RepairStep], cluster: Cluster) -> ChangedCluster:
    """Return the cluster after these steps, in this order."""
    every = list(steps)
    changed = ChangedCluster(cluster, _objects(every, cluster))
    changed = ChangedCluster(changed, _motion(every, cluster))
    return ChangedCluster(changed, _vmis(every, changed))


def _objects(steps: Sequence[RepairStep], cluster: Cluster) -> Iterator[Object]:
    """Yield what the steps patch and add, and what controllers add by themselves."""
    patched: dict[ObjectRef, Object] = {}
    for step in steps:
        for change in _changes((step,)):
            if change.command is Command.PATCH:
                subject = change.subject
                found = patched.get(subject) or find(cluster, *subject)
                if found is not None:
                    patched[subject] = patching.edited(found, change.edits)
            elif change.manifest is not None and kinds.of(Object(change.manifest)) is not None:
                yield Object(change.manifest)
        yield from step.predicted
        for copy in step.copies:
            definition = find(cluster, STORAGE_CLASS, "", copy.storage_class)
            terms = volumes.allowed_terms(definition) if definition is not None else []
            claim = find(cluster, PVC, copy.namespace, copy.claim)
            yield from controllers.copy_objects(copy, claim, terms)
    predicted = {_subject(obj) for step in steps for obj in step.predicted}
    for subject, obj in patched.items():
        if subject in predicted:
            continue
        if subject.kind is RESOURCE_QUOTA:
            yield controllers.counted_quota(obj)
        elif subject.kind is VM:
            yield _started(obj, steps, subject)
        else:
            yield obj
        if subject.kind is HCO:
            yield from _kubevirt(obj, cluster)


def _subject(obj: Object) -> ObjectRef | None:
    kind = kinds.of(obj)
    return ObjectRef.of(kind, obj) if kind is not None else None


def _started(vm: Object, steps: Sequence[RepairStep], subject: ObjectRef) -> Object:
    """Return a VM without RestartRequired if a step restarts it."""
    if not any(
        step.subject == subject and step.takes_effect is TakesEffect.RESTART for step in steps
    ):
        return vm
    return controllers.without_condition(vm, "RestartRequired")


def _kubevirt(hco: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the KubeVirt resource after HyperConverged has written its migration limits into it."""
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    if found is None:
        return
    said = migration_limits.block(hco).map
    edits = [
        FieldEdit((*migration_limits.block(found).path, key), value) for key, value in said.items()
    ]
    yield patching.edited(found, edits)


# --- migrations under way -------------------------------------------------------------------------


def _motion(steps: Sequence[RepairStep], cluster: Cluster) -> Iterator[Object]:
    """Yield the migrations that wait for what the steps change, as KubeVirt begins them again,
    and those that end.

    What such a migration has recorded, a refusal or how long it waits, is of the cluster before the
    steps.
    """
    for step in steps:
        if step.takes_effect is TakesEffect.RESTART:
            for migration in unfinished(step.subject, cluster):
                yield controllers.given_up(migration)
                target = _target(migration, cluster)
                yield from (controllers.ended(target),) if target is not None else ()
    freed = {
        change.subject.namespace for change in _changes(steps) if change.subject.kind in _REFUSING
    }
    starts = any(edit.path[-1] in _LIMITS for change in _changes(steps) for edit in change.edits)
    for migration in cluster.known(VMIM) if freed or starts else ():
        pending = migration.at("status", "phase").text in (None, vm_states_motion.PENDING)
        if (
            pending
            and (starts or vms.namespace_of(migration) in freed)
            and _target(migration, cluster) is None
        ):
            yield controllers.tried_again(migration, cluster.time)
    if starts:
        yield from map(
            controllers.asked_again, filter(vm_states_queue.is_marked, cluster.known(VMI))
        )


def unfinished(vm: ObjectRef, cluster: Cluster) -> Sequence[Object]:
    """Return the known migrations of a VM that have not ended."""
    vmi = find(cluster, VMI, vm.namespace, vm.name)
    own = migrations.of_vmi(vmi, cluster) if vmi is not None else ()
    return [each for each in own if not each.ended]


def _target(migration: Object, cluster: Cluster) -> Object | None:
    return vm_states_motion.motion(cluster).targets.get(migration.metadata["uid"].text or "-")


def _changes(steps: Iterable[RepairStep]) -> Iterator[ObjectChange]:
    return (change for step in steps for change in (*step.changes, *step.followed))


_REFUSING: Final = (RESOURCE_QUOTA, LIMIT_RANGE)
"""The kinds that refuse pods of a namespace."""
_LIMITS: Final = (migration_limits.PER_CLUSTER, migration_limits.PER_NODE)


# --- running VMs ----------------------------------------------------------------------------------


def _vmis(steps: Sequence[RepairStep], changed: ChangedCluster) -> Iterator[Object]:
    """Yield the running VMIs and launcher pods whose VMs the steps change."""
    by_vm = grouped((step for step in steps if step.subject.kind is VM), lambda step: step.subject)
    for subject, own in by_vm.items():
        yield from vmi_after(subject, own, changed)


def vmi_after(subject: ObjectRef, own: Sequence[RepairStep], changed: Cluster) -> Iterator[Object]:
    """Yield the VMI of a VM after these steps of it, and its launcher pod if it is another one."""
    vmi, vm = find(changed, VMI, subject.namespace, subject.name), find(changed, *subject)
    if vmi is None or vm is None:
        return
    restarts = False
    for step in own:
        if step.takes_effect is TakesEffect.LIVE:
            vmi = controllers.live(vmi, vm)
        elif step.takes_effect is TakesEffect.COPY:
            vmi = controllers.copied(vmi, vm, changed)
        elif step.takes_effect is TakesEffect.RESTART:
            own_changes = (
                change for change in (*step.changes, *step.followed) if change.subject == subject
            )
            edits = [edit for change in own_changes for edit in change.edits]
            vmi, restarts = controllers.restarted(vmi, vm, edits, changed), True
        elif any(_EVACUATE_CANCEL in change.arguments for change in step.changes):
            vmi = controllers.without_mark(vmi)
    yield vmi
    pod = controllers.new_launcher(vmi, changed) if restarts else None
    if pod is not None:
        yield pod
