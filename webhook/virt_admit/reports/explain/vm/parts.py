"""Parts of the report about one VM that come straight from its objects: migrations, queue, budgets,
volumes.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.starts import hotplug_phases
from virt_admit.forecasts.drain.states.vm_states_kinds import VmState
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import PDB, PVC, VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import (
    disruption_budgets,
    migration_history,
    node_local_volumes,
    vms,
)
from virt_admit.model.kubevirt.instances.migration_history import PastMigration
from virt_admit.model.kubevirt.instances.migrations import copies
from virt_admit.model.kubevirt.instances.storage import SHARED, Access
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.scheduler import volumes as scheduler_volumes
from virt_admit.reports.drain.report import FailedMigration
from virt_admit.reports.explain.vm.report import (
    BudgetOfVm,
    MigrationRecord,
    PhaseTime,
    QueuePlace,
    VolumeOfVm,
)


def migrations(obj: Object, cluster: Cluster) -> tuple[tuple[MigrationRecord, ...] | None, str]:
    """Return the last migrations of a VM, the newest first, and what could not be read."""
    _, unseen = gather(cluster.list(VMIM, vms.namespace_of(obj)))
    found = tuple(map(_record, migration_history.history(obj, cluster)))
    return (None if unseen and not found else found), unseen


def _record(past: PastMigration) -> MigrationRecord:
    failure = past.failure
    return MigrationRecord(
        name=past.name,
        phase=past.phase,
        asked_by=past.asked_by,
        created=clock.stamp(past.created),
        source=past.source or None,
        target=past.target or None,
        phases=tuple(PhaseTime(phase, seconds) for phase, seconds in past.phases),
        failure=FailedMigration(str(failure.kind), failure.text) if failure is not None else None,
    )


def queue(state: VmState | None, known: bool) -> QueuePlace | None:
    """Return the place of a VM among the migrations that wait.

    ``known``: whether every migration was read.
    """
    if state is not None and state.holders:
        holders = tuple(f"{where}/{name}" for where, name in state.holders)
        return QueuePlace(True, state.detail, state.others, holders)
    return QueuePlace(False, "", 0, ()) if known else None


def budgets(obj: Object, cluster: Cluster) -> tuple[tuple[BudgetOfVm, ...] | None, str]:
    """Return the budgets that select the pod of a VM, and what could not be read."""
    _, unseen = gather(cluster.list(PDB, vms.namespace_of(obj)))
    covering = sorted(disruption_budgets.covering(obj, cluster), key=lambda each: each.name)
    refuses = disruption_budgets.blocking(obj, cluster) is not None
    several = len(covering) > 1
    forbids = disruption_budgets.forbids
    found = tuple(_budget(each, refuses and (several or forbids(each))) for each in covering)
    return (None if unseen and not found else found), unseen


def _budget(budget: Object, blocks: bool) -> BudgetOfVm:
    allowed = budget.at("status", "disruptionsAllowed").integer
    return BudgetOfVm(vms.namespace_of(budget), budget.name, allowed, blocks)


def volumes(
    obj: Object, cluster: Cluster, migratable: bool | None
) -> tuple[tuple[VolumeOfVm, ...] | None, tuple[str, ...]]:
    """Return the volumes of a VM, and what could not be read of them."""
    spec = vms.vmi_spec(obj)
    if not spec.is_map:
        return None, (f"the spec of {obj.kind} {obj.full_name}",)
    unseen: list[str] = []
    items = spec["volumes"].items()
    found = tuple(_volume(each, obj, cluster, migratable, unseen) for each in items)
    return found, tuple(unseen)


def _volume(
    volume: Field, obj: Object, cluster: Cluster, migratable: bool | None, unseen: list[str]
) -> VolumeOfVm:
    name = volume["name"].text or ""
    kind = next((key for key in volume.map if key != "name"), "")
    claim = next(launcher_pod.claims_of(volume), None)
    if claim is None:
        return VolumeOfVm(name, kind, None, None, (), None, "")
    try:
        found = cluster.get(PVC, vms.namespace_of(obj), claim)
    except Unseen as blind:
        unseen.append(blind.what)
        return VolumeOfVm(name, kind, claim, None, None, None, "")
    if found is None:
        return VolumeOfVm(name, kind, claim, None, None, None, f"claim {claim} does not exist")
    modes = tuple(item.text for item in found.at("spec", "accessModes").items() if item.text)
    apart = hotplug_phases.problem(obj, name, claim, cluster) if obj.kind == VMI.kind else None
    why = (apart.reason,) if apart is not None else ()
    remedy = changed_disks.safe(apart.remedy, obj, cluster) if apart is not None else ""
    problem = "; ".join((*why, *_problems(obj, claim, modes, cluster, migratable, unseen)))
    storage_class = found.at("spec", "storageClassName").text
    copied = {each.volume: each.source for each in copies(obj)}.get(name, "")
    phase = found.at("status", "phase").text
    return VolumeOfVm(name, kind, claim, phase, modes, storage_class, problem, remedy, copied)


def _problems(
    obj: Object,
    claim: str,
    modes: tuple[str, ...],
    cluster: Cluster,
    migratable: bool | None,
    unseen: list[str],
) -> Iterator[str]:
    """Yield why another node cannot use a claim."""
    try:
        fault = scheduler_volumes.claim(cluster, vms.namespace_of(obj), claim).fault
        local = "" if fault else node_local_volumes.reason(obj, claim, Access(modes), cluster)
    except Unseen as blind:
        unseen.append(blind.what)
        return
    if fault:
        yield fault
    if local:
        yield f"its data is on one node: {local}"
    if modes and SHARED not in modes and migratable is not True:
        yield "it is not ReadWriteMany, which a migration needs"
