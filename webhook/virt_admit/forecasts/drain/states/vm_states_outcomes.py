"""What the state of a VM means for a drain: a wait that ends, a wait that does not, or unknown,
with the sentence.

A wait with a known end does not block, a wait without one does. Remedies never advise to touch a
migration in post-copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import (
    evacuation_marks,
    vm_states,
    vm_states_left,
    vm_states_motion,
    vm_states_targets,
    vm_states_times,
)
from virt_admit.forecasts.drain.states.vm_states_failures import load_remedy
from virt_admit.forecasts.drain.states.vm_states_kinds import (
    Flag,
    Ruling,
    State,
    StateEffect,
    VmState,
)
from virt_admit.forecasts.drain.states.vm_states_times import age, lasting, moment
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_timeouts, migrations, vms
from virt_admit.model.kubevirt.instances.migration_timeouts import MigrationSettings
from virt_admit.model.kubevirt.launcher import left_selectors
from virt_admit.model.kubevirt.settings import migration_limits, versions
from virt_admit.model.kubevirt.settings.versions import Gate
from virt_admit.model.lookups import find
from virt_admit.model.messages import count, cut_middle, ordinal, scheduler_words
from virt_admit.model.problems import ProblemCause

Ends = Callable[[str, str], StateEffect]
"""How the migration of a VM ends, by its namespace and name."""


def _ends(_namespace: str, _name: str) -> StateEffect:
    return StateEffect.WAITS


class Case(NamedTuple):
    """A VMI in a state."""

    vmi: Object
    found: VmState
    cluster: Cluster
    ends: Ends = _ends
    """What keeps the migrations that hold the places from ending, besides their states."""


NO_RULING: Final = frozenset(
    (
        State.GONE,
        State.ENDED,
        State.STOPPING,
        State.STARTING,
        State.REFUSED,
        State.EXTERNAL,
        State.STILL,
    )
)
"""States that the forecast of a VM at rest describes already."""


def held_target(vmi: Object, found: VmState, cluster: Cluster) -> Ruling | None:
    """Return why the target pod of a migration is refused or does not start, or why its guest is
    active there and nothing ends the migration; None: it goes on, or that is not certain yet.

    Where an attempt before has failed, or each retry meets the cause, it is certain earlier.
    """
    hangs = found.state in _OF_TARGET or vm_states_left.is_unended(vmi, found)
    ruled = ruling(vmi, found, cluster) if hangs else None
    if ruled is None or ruled.effect is StateEffect.WAITS or not ruled.remedy:
        return None
    blocks = ruled.effect is StateEffect.BLOCKS
    if blocks and found.attempts:
        return ruled
    least = TARGET_STARTS / 2 if found.attempts or blocks else TARGET_STARTS
    return ruled if vm_states_times.is_older(found.since, least, cluster) else None


_OF_TARGET: Final = (State.QUOTA, State.NO_TARGET, State.TARGET_PENDING, State.TARGET_NOT_READY)
TARGET_STARTS: Final = timedelta(minutes=10)
"""A target pod has pulled its images and attached its volumes by then."""


def ruling(vmi: Object, found: VmState, cluster: Cluster, ends: Ends = _ends) -> Ruling | None:
    """Return what the state of a VMI that migrates means for a drain; None:
    the same as for a VM at rest.
    """
    if found.state in NO_RULING:
        return None
    case = Case(vmi, found, cluster, ends)
    result = vm_states_targets.on_its_own_node(vmi, found, cluster) or _RULINGS[found.state](case)
    if found.silent:
        result = _to_silent_node(result, found)
    down = None if found.silent else vm_states_left.without_handler(vmi, found, cluster)
    if down is not None:
        effect = StateEffect.WAITS if found.until is not None else StateEffect.UNKNOWN
        result = Ruling(effect, f"{result.reason}; {down.reason}", down.remedy)
    arrives = result.effect if down is None else StateEffect.UNKNOWN
    reason = "; ".join((result.reason, *_of_flags(case, arrives)))
    return result._replace(
        reason=reason, remedy=result.remedy or evacuation_marks.way_to_stay(vmi, found, cluster)
    )


def _to_silent_node(ruled: Ruling, found: VmState) -> Ruling:
    """Return what becomes of a migration to a node that does not report: its deadline counts,
    not its pace.
    """
    reason = f"{ruled.reason}; {found.target} does not report"
    ends = found.until is not None and found.state is not State.POST_COPY
    remedy = typed("repair or fence it", kubectl("describe", NODE, found.target))
    return Ruling(StateEffect.WAITS if ends else StateEffect.UNKNOWN, reason, remedy)


def _of_flags(case: Case, effect: StateEffect) -> Iterator[str]:
    found = case.found
    if Flag.ARRIVING in found.flags:
        arrives = effect is StateEffect.WAITS and found.placed
        # a copy of disks takes minutes or hours
        soon = "" if Flag.COPYING in found.flags else " in a moment"
        yield (
            f"it arrives from {found.source}{soon}, then has to leave again"
            if arrives
            else f"if it arrives from {found.source} after all, it has to leave again"
        )
    if Flag.LEFTOVER in found.flags:
        yield evacuation_marks.words(case.vmi, case.cluster)
    if Flag.TAINTED in found.flags:
        node = case.vmi.at("status", "nodeName").text
        yield (
            f"it moves because of the taint {migration_limits.drain_taint(case.cluster)} on {node}"
        )
    if Flag.FOREIGN in found.flags and found.state is not State.TWO_PODS:  # it does not move
        yield migrations.asked_by(found.migration, case.vmi)


# --- each state -----------------------------------------------------------------------------------


def _stale_mark(case: Case) -> Ruling:
    left = f"is marked for the evacuation of {case.found.detail}, which it has left"
    reason = f"{left}: every eviction is refused and nothing moves it"
    remedy = evacuation_marks.evacuate_cancel(case.vmi, case.cluster)
    return Ruling(StateEffect.BLOCKS, reason, remedy, ProblemCause.MARK_LEFT)


def _marked(case: Case) -> Ruling:
    if case.found.holders:
        return _queued(case)
    since = f" {lasting(case.found.since, case.cluster)}" if case.found.since else ""
    if case.found.late:
        reason = f"has been marked for evacuation{since}, but KubeVirt has not created a migration"
        return vm_states_targets.not_created(case.vmi, case.found, reason, case.cluster, VMIM)
    return Ruling(
        StateEffect.WAITS,
        f"has been marked for evacuation{since}; KubeVirt creates its migration next",
    )


def _backoff(case: Case) -> Ruling:
    verb = "was due" if vm_states_times.is_over(case.found.until, case.cluster) else "starts"
    until = f"; the next one {verb} {f'at {_until(case)}' if case.found.until else 'in minutes'}"
    text = (
        f" ({cut_middle(case.found.failure.text, 120)})"
        if case.found.failure and case.found.failure.text
        else ""
    )
    verb = "attempt" if case.found.attempts == 1 else "attempts"
    return Ruling(StateEffect.WAITS, f"{case.found.attempts} {verb} failed{text}{until}")


def _backup(case: Case) -> Ruling:
    name = case.vmi.at("status", "changedBlockTracking", "backupStatus", "backupName").text
    reason = f"waits for backup {name}" if name else f"waits for a backup{_words(case.found)}"
    if _is_critical(case.found.migration):
        return Ruling(StateEffect.WAITS, f"{reason}, which the migration of a drain aborts")
    return Ruling(StateEffect.UNKNOWN, reason, "wait until the backup has ended")


def _is_critical(migration: Object | None) -> bool:
    """Whether a migration aborts backups (migration.go#handleVMBackup): that of a drain,
    by its priority.
    """
    said = migration.at("spec", "priority").text if migration is not None else None
    drains = migration is not None and migrations.is_of_drain(migration)
    return drains if said is None else said == "system-critical"


def _volume(case: Case) -> Ruling:
    until = f", {_at_most(case)}" if case.found.until else ""
    reason = f"waits until its utility volume is detached{until}"
    return Ruling(StateEffect.WAITS, reason, "end its export or memory dump")


def _quota(case: Case) -> Ruling:
    return vm_states_targets.quota(case.vmi, case.found, case.cluster)


def _queued(case: Case) -> Ruling:
    found = case.found
    holding = case.cluster.cached(_holding)
    held = [(max(holding[key].effect, case.ends(*key)), holding[key]) for key in found.holders]
    effect, worst = max(held, key=lambda each: each[0])
    first = ", ".join(each.reason for _, each in held[:_MOST_HOLDERS])
    more = f" and {len(held) - _MOST_HOLDERS} more" if len(held) > _MOST_HOLDERS else ""
    reason = f"{_place(found)}; {found.detail} and sends {first}{more}"
    return Ruling(effect, reason, worst.remedy if effect else "", ProblemCause.QUEUED)


def _place(found: VmState) -> str:
    """Return the place of a VM in the queue, no more of it than is known."""
    if found.waiting < 2:
        return "waits for a place"
    if found.unordered:
        return f"waits with {count(found.others, 'other')} for a place, in no order"
    last = f" to {ordinal(found.last)}" if found.tied else ""
    tied = " (in no order among equal ones)" if found.tied else ""
    return f"is {ordinal(found.place)}{last} of {found.waiting} that wait for a place{tied}"


_MOST_HOLDERS: Final = 3


def _holding(cluster: Cluster) -> Mapping[tuple[str, str], Ruling]:
    """Return for each VM whose migration holds a place how it ends,
    and the VM with its age as the reason.
    """
    keys = vm_states_motion.motion(cluster).moving
    return {key: _held(*key, cluster) for key in keys}


def _held(namespace: str, name: str, cluster: Cluster) -> Ruling:
    full_name = f"{namespace}/{name}"
    described = kubectl("describe", VMI, name, namespace)
    remedy = f"see why {full_name}, which holds the place, does not end: {described}"
    vmi = find(cluster, VMI, namespace, name)
    if vmi is None:
        return Ruling(StateEffect.UNKNOWN, full_name, remedy)
    state = vm_states.of(vmi, cluster)
    # its objects were read at two moments: it holds a place, and seems to wait for one
    if state.holders:
        return Ruling(StateEffect.UNKNOWN, full_name, remedy)
    own = _RULINGS[state.state](Case(vmi, state, cluster)) if state.state not in NO_RULING else None
    since = _since(state, cluster)
    if own is None or not own.effect or state.state is State.RUNNING:
        return Ruling(
            own.effect if own is not None else StateEffect.WAITS, f"{full_name}{since}", remedy
        )
    return Ruling(own.effect, f"{full_name}{since} ({own.reason})", remedy)


def _since(found: VmState, cluster: Cluster) -> str:
    return f" for {lasts}" if (lasts := age(found.since, cluster)) else ""


def _unschedulable(case: Case) -> Ruling:
    until = vm_states_targets.end(case.found, case.cluster)
    reason = f"no node took its target pod{_words(case.found)}{until}"
    if vm_states_times.is_older(case.found.until, vm_states_times.OVERDUE, case.cluster):
        way = typed("see why KubeVirt does not end it", _describe(case.vmi))
        return Ruling(StateEffect.UNKNOWN, reason, way)
    aim = left_selectors.aim(case.vmi, case.cluster)
    return Ruling(StateEffect.WAITS, f"{reason}{aim.words}", aim.remedy)


def _preparing(case: Case) -> Ruling:
    phase = (
        case.found.migration.at("status", "phase").text
        if case.found.migration is not None
        else None
    )
    here = case.vmi.at("status", "nodeName").text
    where = f" on {here}" if phase == "TargetReady" and here else vm_states_targets.on(case.found)
    since = lasting(case.found.since, case.cluster)
    return Ruling(
        StateEffect.WAITS,
        f"virt-handler{where} prepares its migration and has not answered {since}",
    )


def _running(case: Case) -> Ruling:
    settings = migration_timeouts.settings(
        case.vmi, case.vmi.at("status", "migrationState"), case.cluster
    )
    since = _since(case.found, case.cluster)
    last = vm_states_times.last_duration(case.vmi, case.cluster)
    usual = f", its last one took {duration(last)}" if last is not None and case.found.late else ""
    if vm_states_times.is_older(case.found.until, vm_states_times.OVERDUE, case.cluster):
        reason = (
            f"{_migrates(since)}{_to(case.found)}{since}; its time was over at {_until(case)}, and "
            "it still runs"
        )
        return Ruling(
            StateEffect.UNKNOWN,
            reason,
            typed("see why virt-handler does not end it", _describe(case.vmi)),
        )
    reason = f"{_migrates(since)}{_to(case.found)}{since}{usual}{_end(case, settings)}"
    deadline = migration_timeouts.seconds(case.vmi, settings, case.cluster)
    ends = settings is not None and settings.ends_at_deadline and deadline is not None
    if not case.found.late or (
        ends and not versions.gate_is_known_on(case.cluster, Gate.MIGRATION_STALL_DETECTION)
    ):
        return Ruling(StateEffect.WAITS, reason)
    return Ruling(StateEffect.UNKNOWN, reason, load_remedy(case.vmi, settings, case.cluster))


def open_end(found: VmState, ruled: Ruling | None, again: Ruling | None) -> Ruling | None:
    """Return why it is not known whether a migration ends, from its state (``ruled``) and from the
    last ones (``again``); None: it is.
    """
    known = [each for each in (ruled, again) if each and each.effect is StateEffect.UNKNOWN]
    if len(known) > 1 and found.state is State.RUNNING:
        return known[0]._replace(
            reason=f"{known[0].reason}; {known[1].reason}", remedy=known[1].remedy
        )
    return known[0] if known else None


def _end(case: Case, settings: MigrationSettings | None) -> str:
    """Return what happens at the deadline of a running migration."""
    limit = migration_timeouts.seconds(case.vmi, settings, case.cluster)
    if settings is None or limit is None:
        return "; it has no deadline" if settings is not None and not settings.completion else ""
    if vm_states_times.is_over(case.found.until, case.cluster):
        return f"; its time was over at {_until(case)}"
    at = (
        f"at {_until(case)}"
        if case.found.until
        else f"{duration(timedelta(seconds=limit))} after its start"
    )
    if settings.post_copy:
        return f"; switches to post-copy {at}"
    if settings.disruption:
        return f"; its guest is paused {at} until the copy ends"
    if case.found.late:
        latest = " at the latest" if case.found.attempts else ""
        return (
            f"; KubeVirt cancels it {at}{latest}{' and repeats it' if _is_repeated(case) else ''}"
        )
    return (
        f"; if it has not ended {at}, KubeVirt "
        f"cancels{' and repeats' if _is_repeated(case) else ''} it"
    )


def _migrates(since: str) -> str:
    return "has been migrating" if since else "migrates"


def _is_repeated(case: Case) -> bool:
    """Whether KubeVirt makes a migration again that it has cancelled: not one that a person or
    another program made.
    """
    return case.found.migration is not None and migrations.is_automatic(case.found.migration)


def _paused(case: Case) -> Ruling:
    until = f", {_at_most(case)}" if case.found.until else ""
    since = _since(case.found, case.cluster)
    reason = (
        f"{_migrates(since)}{_to(case.found)}{since}; its guest stands still until the copy "
        f"ends{until}"
    )
    return Ruling(StateEffect.WAITS, reason)


def _post_copy(case: Case) -> Ruling:
    target = case.found.target or "its target node"
    return Ruling(StateEffect.WAITS, f"runs on {target} already, its memory follows (post-copy)")


def _aborting(case: Case) -> Ruling:
    reason = (
        f"its migration{_to(case.found)} is being cancelled "
        f"{lasting(case.found.since, case.cluster)}"
    )
    if case.found.late:
        return Ruling(
            StateEffect.UNKNOWN, reason, f"look at the events of the VMI: {_describe(case.vmi)}"
        )
    return Ruling(StateEffect.WAITS, reason)


def _not_closed(case: Case) -> Ruling:
    """Return what it means that KubeVirt does not close a migration that has ended.

    It waits for a hotplug, or until it has handed over the claim of the state
    (migration.go#processMigrationPhase).
    """
    if vm_states_left.is_unended(case.vmi, case.found):
        return vm_states_left.unended(case.vmi, case.found, case.cluster)
    kept = "the claim of its vTPM or EFI state" if vms.keeps_state(case.vmi) else ""
    waits = f": {case.found.detail or kept}" if case.found.detail or kept else ""
    failed = vm_states_motion.has_failed(case.vmi.at("status", "migrationState"))
    reason = (
        f"{'has not migrated' if failed else 'has migrated'}, but its migration is still "
        f"open{waits}"
    )
    remedy = typed(
        "see why it stays open" if case.found.late else "if it lasts, see that condition",
        _describe(case.vmi),
    )
    return Ruling(StateEffect.UNKNOWN if case.found.late else StateEffect.WAITS, reason, remedy)


def _decentralized(case: Case) -> Ruling:
    since = lasting(case.found.since, case.cluster)
    reason = f"has been migrating between clusters {since}, so its end cannot be determined"
    remedy = (
        "see which end waits, here virt-handler of its node, and cancel the migration if it lasts"
    )
    return Ruling(StateEffect.UNKNOWN, reason, typed(remedy, _describe(case.vmi)))


def _by(judge: Callable[[Object, VmState, Cluster], Ruling]) -> Callable[[Case], Ruling]:
    return lambda case: judge(case.vmi, case.found, case.cluster)


_RULINGS: Final[dict[State, Callable[[Case], Ruling]]] = {
    State.STALE_MARK: _stale_mark,
    State.MARKED: _marked,
    State.TWO_PODS: _by(vm_states_left.two_pods),
    State.BACKOFF: _backoff,
    State.BLOCKED_BY_BACKUP: _backup,
    State.BLOCKED_BY_VOLUME: _volume,
    State.QUOTA: _quota,
    State.QUEUED: _queued,
    State.NO_TARGET: _by(vm_states_targets.no_target),
    State.UNSCHEDULABLE: _unschedulable,
    State.TARGET_PENDING: _by(vm_states_targets.pending),
    State.TARGET_NOT_READY: _by(vm_states_targets.not_ready),
    State.PREPARING: _preparing,
    State.RUNNING: _running,
    State.PAUSED: _paused,
    State.POST_COPY: _post_copy,
    State.ABORTING: _aborting,
    State.ARRIVED: _by(vm_states_left.arrived),
    State.NOT_CLOSED: _not_closed,
    State.DECENTRALIZED: _decentralized,
}


def _at_most(case: Case) -> str:
    over = vm_states_times.is_over(case.found.until, case.cluster)
    return f"{'whose time was over at' if over else 'at most until'} {_until(case)}"


def _until(case: Case) -> str:
    return moment(case.found.until, clock.now(case.cluster))


def _words(found: VmState) -> str:
    return f": {scheduler_words(found.detail, 200)}" if found.detail else ""


def _to(found: VmState) -> str:
    return f" to {found.target}" if found.target else ""


def _describe(vmi: Object) -> str:
    return kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
