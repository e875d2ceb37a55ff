"""Parts of the report about one VM that come straight from its objects: migrations, queue, budgets,
volumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.drain.guests import changed_disks, relabelled_claims
from virt_admit.forecasts.drain.starts import hotplug_phases
from virt_admit.forecasts.drain.starts.storage import unadopted_claims
from virt_admit.forecasts.drain.states import vm_states_motion
from virt_admit.forecasts.drain.states.vm_states_kinds import VmState
from virt_admit.forecasts.remediation.unwatched import wiped_guests
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import PDB, PVC, VMI, VMIM
from virt_admit.model.kubernetes.objects import FINAL_PHASES, Field, Object
from virt_admit.model.kubevirt.instances import (
    disruption_budgets,
    migration_history,
    node_local_volumes,
    storage,
    vms,
)
from virt_admit.model.kubevirt.instances.migration_history import PastMigration
from virt_admit.model.kubevirt.instances.migrations import copies
from virt_admit.model.kubevirt.instances.storage import SHARED, Access
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.model.lookups import find
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
    past = migration_history.history(obj, cluster)
    found = tuple(_record(each, *_nodes(each, obj, cluster)) for each in past)
    return (None if unseen and not found else found), unseen


def _nodes(past: PastMigration, obj: Object, cluster: Cluster) -> tuple[str | None, str | None]:
    """Return source and target of a migration; None: not known. KubeVirt writes them only when the
    target pod is ready."""
    found = find(cluster, VMIM, vms.namespace_of(obj), past.name)
    uid = found.metadata["uid"].text if found is not None else None
    pod = vm_states_motion.motion(cluster).targets.get(uid or "-")
    on = pod.at("spec", "nodeName").text if pod is not None else None
    if past.target or not on or past.phase in FINAL_PHASES:
        return past.source or None, past.target or None
    return past.source or obj.at("status", "nodeName").text, on


def _record(past: PastMigration, source: str | None, target: str | None) -> MigrationRecord:
    failure = past.failure
    return MigrationRecord(
        name=past.name,
        phase=past.phase,
        asked_by=past.asked_by,
        created=clock.stamp(past.created),
        source=source,
        target=target,
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
    found = [_volume(each, obj, cluster, migratable, unseen) for each in items]
    state = storage.state_claim(obj) if vms.keeps_state(obj) else ""
    if state and find(cluster, PVC, vms.namespace_of(obj), state) is not None:
        moves = versions.has_release(cluster, Feature.PERSISTENT_STATE.since) or migratable
        found.append(_of_claim(state, _STATE, state, obj, cluster, moves, unseen))
    return tuple(found), tuple(unseen)


_STATE: Final = "vTPM or EFI state"
"""The kind of the claim that KubeVirt makes by itself, which no volume of the spec names."""


def _volume(
    volume: Field, obj: Object, cluster: Cluster, migratable: bool | None, unseen: list[str]
) -> VolumeOfVm:
    name = volume["name"].text or ""
    kind = next((key for key in volume.map if key != "name"), "")
    claim = next(launcher_pod.claims_of(volume), None)
    if claim is None:
        lost = wiped_guests.of_vmi(obj, cluster) if obj.kind == VMI.kind else None
        if lost is not None and lost.volume["name"].text == name:
            return VolumeOfVm(name, kind, None, None, (), None, lost.brief, lost.remedy)
        return VolumeOfVm(name, kind, None, None, (), None, "")
    return _of_claim(name, kind, claim, obj, cluster, migratable, unseen)


def _of_claim(
    name: str,
    kind: str,
    claim: str,
    obj: Object,
    cluster: Cluster,
    migratable: bool | None,
    unseen: list[str],
) -> VolumeOfVm:
    try:
        found = cluster.get(PVC, vms.namespace_of(obj), claim)
    except Unseen as blind:
        unseen.append(blind.what)
        return VolumeOfVm(name, kind, claim, None, None, None, "")
    if found is None:
        return VolumeOfVm(name, kind, claim, None, None, None, f"claim {claim} does not exist")
    modes = tuple(item.text for item in found.at("spec", "accessModes").items() if item.text)
    apart = hotplug_phases.problem(obj, name, claim, cluster) if obj.kind == VMI.kind else None
    refused = unadopted_claims.refused(obj, cluster)
    if apart is None and (taken := relabelled_claims.of_claim(obj, claim, cluster)) is not None:
        apart = taken.problem
    why = (apart.reason,) if apart is not None else ()
    if refused is not None and refused.name == claim:
        why = (f"it belongs to no DataVolume {claim}, which CDI refuses to create",)
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
