"""Why a VM does not run: the nearest cause that the forecasts know,
else what its own status says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.drain import harvester_maintenance, vm_events, vmi_evictions
from virt_admit.forecasts.drain.control import failed_plans, held_copies, stuck_deletions, vm_writes
from virt_admit.forecasts.drain.starts import (
    crashed_launchers,
    next_starts,
    start_obstacles,
    waiting_disks,
)
from virt_admit.forecasts.drain.starts.storage import awaited_claims, restored_claims
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.drain.vm_events import EventForecast
from virt_admit.model.commands import and_then, kubectl, typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VM, VM_RESTORE, VMI, Kind
from virt_admit.model.kubernetes.objects import FINAL_PHASES, Object
from virt_admit.model.kubevirt.instances import down_vms, expand, lifecycle, migrations, vms
from virt_admit.model.kubevirt.instances.lifecycle import Eviction, Then
from virt_admit.model.kubevirt.instances.vm_lookup import FoundVm
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle

_LONGEST: Final = 200

START: Final = "start it"
"""How the remedy of a VM begins that nothing keeps from starting."""


def is_kept(events: Sequence[EventForecast]) -> bool:
    """Whether something is known to keep a VM that does not run from its start."""
    remedy = events[0].remedy
    return bool(remedy) and not remedy.startswith(START)


def events(found: FoundVm, cluster: Cluster) -> tuple[EventForecast, ...]:
    """Return what happens to a VM that is on no node: nothing, and why it does not run."""
    if VMI in unread_kinds(found):
        return vm_events.unread(f"{VMI} {found.full_name}")
    phase = found.vmi.at("status", "phase").text if found.vmi is not None else None
    rests = phase is None or phase in FINAL_PHASES
    if rests and found.vm is not None and found.vm.deleted:
        return vm_events.not_running(*_deleted(found.vm, cluster))
    stuck = start_obstacles.of_vm(found.vm or found.obj, found.vmi, cluster)
    if stuck is not None and rests:
        return vm_events.not_running(stuck.reason, stuck.remedy)
    if maintained := _maintained(found, cluster):
        return vm_events.not_running(f"it is not running: it {maintained}")
    if found.vmi is not None and found.vmi.ended:
        return vm_events.not_running(*_ended(found, found.vmi, cluster))
    restore = found.obj.at("status", "restoreInProgress").text
    if phase is None and restore:
        return vm_events.not_running(*_restored(found, restore, cluster))
    if found.vmi is None and found.vm is not None:
        replaced = restored_claims.under_way(found.vm, cluster)
        if replaced is not None:
            words = restored_claims.words(replaced, cluster)
            return vm_events.not_running(f"it is off, as {words}")
    if found.vmi is None or phase is None:
        return vm_events.not_running(*_absent(found, cluster))
    why = stuck.reason if stuck is not None else _waits(found, cluster)
    because = f", because {why}" if why else ""
    remedy = stuck.remedy if stuck is not None else ""
    return vm_events.not_running(f"it does not run yet (its VMI is {phase}){because}", remedy)


def _restored(found: FoundVm, name: str, cluster: Cluster) -> tuple[str, str]:
    """Return that a restore locks a VM, with what keeps it from its end, and what to do."""
    reason = f"KubeVirt does not start it before restore {name} ends"
    restore = find(cluster, VM_RESTORE, found.namespace, name)
    held = held_copies.quietly(restore, cluster) if restore is not None else None
    if held is None:
        return reason, ""
    return f"{reason}: {held.reason}", typed(held.remedy, held.command)


def _deleted(vm: Object, cluster: Cluster) -> tuple[str, str]:
    """Return that a VM is being deleted, with what keeps it, and what to do."""
    stuck = stuck_deletions.of_vm(vm, cluster)
    if stuck is None:
        return f"{vm_events.NOT_RUNNING}, and is being deleted", ""
    remedy = typed(stuck.problem.remedy, stuck.problem.command)
    return f"{vm_events.NOT_RUNNING}: {stuck.reason}", remedy


def _absent(found: FoundVm, cluster: Cluster) -> tuple[str, str]:
    """Return why a VM has no VMI, and what to do."""
    vm = found.vm
    if vm is None:
        return vm_events.NOT_RUNNING, ""
    if without := _without_type(vm, cluster):
        return without
    if (removed := removed_operators.kubevirt(cluster)) is not None:
        why = f"{vm_events.NOT_RUNNING}, and could not start: {removed.of_vms.reason}"
        return why, removed.of_vms.remedy
    if down_vms.should_run(vm) and (waits := _failed(vm, cluster) or _waits(found, cluster)):
        return f"{vm_events.NOT_RUNNING}: {waits}", ""
    lacks = start_obstacles.of_stopped(vm, cluster)
    if lacks is not None:
        return f"{vm_events.NOT_RUNNING}, and could not start: {lacks.reason}", lacks.remedy
    refused = vm_writes.refused_start(vm, cluster)
    if refused is not None:
        return f"{vm_events.NOT_RUNNING}, and {refused.reason.partition(', ')[0]}", refused.remedy
    begin = _as_wanted(vm, cluster) or vm_events.NOT_RUNNING
    if (some := next_starts.doubt(vm, cluster)) is not None:
        return f"{begin}. It may not start: {some.reason}", some.remedy
    doubt = crashed_launchers.doubt(vm, cluster)
    may = f". It may not start: {doubt}" if doubt else ""
    return f"{begin}{may}", ""


_OFF: Final = {
    "Halted": "with run strategy Halted KubeVirt does not start it",
    "Manual": "with run strategy Manual KubeVirt starts it only when a user asks for that",
    "RerunOnFailure": (
        "its guest was shut down or it was stopped, and RerunOnFailure starts a VM again only "
        "after a failure"
    ),
}
"""Why a VM without a VMI is off as it is meant to be:
kubevirt/user-guide:docs/compute/run_strategies.md.
"""


def _as_wanted(vm: Object, cluster: Cluster) -> str:
    """Return that a VM is off as its run strategy wants it, and since when; empty:
    that is not certain.
    """
    why = _OFF.get(vms.run_strategy(vms.vm_spec(vm)) or "", "")
    ready, asked = vm.condition("Ready"), any(vm.at("status", "stateChangeRequests").items())
    fails = vm.is_true("Failure") or vm.at("status", "startFailure").present
    if not why or fails or asked or down_vms.should_run(vm):
        return ""
    entered = ready["lastTransitionTime"].text if ready["status"].text == "False" else None
    since = clock.lasting(entered, cluster) if entered else ""
    if moved := failed_plans.why_off(vm, cluster):
        return f"it is off{since}: {moved}"
    return f"it is off{since}, as it is meant to be: {why}"


def _without_type(vm: Object, cluster: Cluster) -> tuple[str, str] | None:
    """Return that the instance type or the preference of a VM does not exist, and what to do; None:
    that is not known.
    """
    absent = (each for each in expand.absent(vm, cluster) if not isinstance(each, Unseen))
    missing = next(absent, None)
    if missing is None:
        return None
    begin = ":" if down_vms.should_run(vm) else ", and could not start:"
    reason = f"{vm_events.NOT_RUNNING}{begin} its {missing.words}, so KubeVirt does not start it"
    return reason, typed(missing.remedy, kubectl("edit", VM, vm.name, vms.namespace_of(vm)))


def _failed(vm: Object, cluster: Cluster) -> str:
    """Return that the last starts of a VM failed, as its status says; empty: they did not."""
    failure = vm.at("status", "startFailure")
    times = failure["consecutiveFailCount"].integer
    if not times:
        return ""
    why = vm.condition("Failure")["message"].text
    again = next_start(vm, cluster)
    next_one = f", and KubeVirt starts it again at {again}" if again else ""
    return (
        f"its last {times} starts failed{next_one}{f': {cut_middle(why, _LONGEST)}' if why else ''}"
    )


def next_start(vm: Object, cluster: Cluster) -> str:
    """Return when KubeVirt starts a VM again whose starts fail; empty: not known,
    or the time has passed.
    """
    again = vm.at("status", "startFailure", "retryAfterTimestamp").text or ""
    return "" if vm_states_times.is_over(clock.instant(again), cluster) else again


def _waits(found: FoundVm, cluster: Cluster) -> str:
    """Return which disk a VM that starts waits for; empty: none is known to be unfinished."""
    awaited = awaited_claims.waiting(found.vmi or found.obj, cluster)
    if awaited is not None:
        return f"{awaited.pending}: {awaited.words}"
    volumes = vms.vmi_spec(found.obj)["volumes"].items()
    disks = filter(None, (volume.at("dataVolume", "name").text for volume in volumes))
    words = (waiting_disks.words(found.obj, disk, cluster) for disk in disks)
    return next(filter(None, words), "")


def _maintained(found: FoundVm, cluster: Cluster) -> str:
    """Return that a VM which does not run was shut down for a maintenance; empty:
    nothing shows it.
    """
    rests = found.vmi is None or found.vmi.ended
    vm = found.vm if rests else None
    return harvester_maintenance.stopped(vm, cluster) if vm is not None else ""


def _ended(found: FoundVm, vmi: Object, cluster: Cluster) -> tuple[str, str]:
    """Return why a VM whose VMI has ended does not run, and what starts it; no remedy: KubeVirt
    does, or no command does.
    """
    phase, strategy = vmi.at("status", "phase").text or "", run_strategy(found) or ""
    outcomes = lifecycle.RUN_STRATEGY.get(strategy)
    then = None
    if outcomes is not None:
        then = outcomes.shutdown if phase == "Succeeded" else outcomes.crash
    killed = start_obstacles.ended(found.vm or found.obj, vmi, cluster)
    because = f", because {killed.reason}" if killed is not None else ""
    avoid = killed.remedy if killed is not None else ""
    if then is not Then.OFF:
        return f"it is not running: its VMI is {phase}{because}", avoid
    if (
        found.vm is not None
        and (down := start_obstacles.stays_off(found.vm, vmi, cluster)) is not None
    ):
        return down.reason, down.remedy
    entered = clock.instant(migrations.entered(vmi, phase))
    ago = vm_states_times.clock_words(entered, cluster) if entered and clock.now(cluster) else ""
    since = f" {ago} ago" if ago else ""
    ended = f"ended with an error{since}"
    if phase == "Succeeded":
        ended = f"shut down{since}{_by(vmi, cluster)}"
    reason = (
        f"it is not running: its guest {ended} (its VMI is {phase}){because}, and {strategy} does "
        "not start it again"
    )
    moved = found.vm is not None and failed_plans.may_have_copy(found.vm, cluster)
    can_start = lifecycle.VIRTCTL[strategy].start is not None and not moved
    start = virtctl("start", found.name, found.namespace) if can_start else ""
    again = f"{START}; with runStrategy Always KubeVirt would do that"
    if not start:
        return reason, avoid
    return reason, and_then(avoid, again, start) if avoid else typed(again, start)


def _by(vmi: Object, cluster: Cluster) -> str:
    """Return what shuts a guest down; empty:
    its eviction strategy leaves the guest itself alone.
    """
    try:
        drained = vmi_evictions.eviction(vmi, cluster) is Eviction.SHUTS_DOWN
    except Unseen:
        return ""
    node = vmi.at("status", "nodeName").text or "its node"
    return f", by itself or by a drain of {node}" if drained else ""


def unread_kinds(found: FoundVm) -> set[Kind]:
    """Return which of the two objects of a VM could not be read."""
    return {kind for kind in (VM, VMI) for what in found.unseen if what.startswith(f"{kind} ")}


def run_strategy(found: FoundVm) -> str | None:
    """Return the run strategy of a VM; None: it has none, or the VM is not known."""
    return vms.run_strategy(vms.vm_spec(found.vm)) if found.vm is not None else None
