"""Steps on the VMs of a pool: the change goes into the template of the pool, which writes its VMs.

A pool restarts running VMs whose template changed, whichever field it is, unless its update
strategy says otherwise. Source: kubevirt/kubevirt:pkg/virt-controller/watch/pool/pool.go#update,
#isOutdatedVMI, #calculateMaxUnavailableInt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.repair.repair_plan import (
    Command,
    FieldEdit,
    ObjectChange,
    ObjectRef,
    RepairStep,
)
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POOL
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find

TEMPLATE: Final = ("spec", "virtualMachineTemplate")
"""Where a pool has the spec of its VMs."""
_RISK: Final = (
    "the pool restarts its VMs as soon as its template changes, all at once unless its "
    "maxUnavailable is lower"
)


def is_managed(vm: Object, cluster: Cluster) -> bool:
    """Return whether a pool writes a VM. A pool that cannot be read does."""
    return vm.controller is not None and not _strategy(vm, "unmanaged", cluster)


def restarts(vm: Object, cluster: Cluster) -> bool:
    """Return whether any change of the template restarts a VM: its pool does,
    and does not wait for its next start.
    """
    return is_managed(vm, cluster) and not _strategy(vm, "opportunistic", cluster)


def _strategy(vm: Object, name: str, cluster: Cluster) -> bool:
    pool = find(cluster, *_pool(vm))
    return pool is not None and pool.at("spec", "updateStrategy", name).present


def _pool(vm: Object) -> ObjectRef:
    name = vm.controller["name"].text or "" if vm.controller is not None else ""
    return ObjectRef(POOL, vms.namespace_of(vm), name)


def moved(step: RepairStep, vm: Object, cluster: Cluster) -> RepairStep:
    """Return a step with its change in the template of the pool."""
    pool = _pool(vm)
    own = tuple(
        change
        for change in step.changes
        if change.command is Command.PATCH and change.subject == step.subject
    )
    by_itself = restarts(vm, cluster)
    return replace(
        step,
        changes=tuple(_changes(step, own, pool, by_itself=by_itself)),
        followed=own,
        title=f"{step.title} (template of pool {pool.name})",
        risk="; ".join(part for part in (step.risk, _RISK if own and by_itself else "") if part),
    )


def _changes(
    step: RepairStep, own: tuple[ObjectChange, ...], pool: ObjectRef, *, by_itself: bool
) -> Iterator[ObjectChange]:
    for change in step.changes:
        if change in own:
            edits = tuple(FieldEdit((*TEMPLATE, *path), value) for path, value in change.edits)
            yield replace(change, subject=pool, edits=edits)
        elif not (own and by_itself and change.command is Command.VIRTCTL):
            yield change
