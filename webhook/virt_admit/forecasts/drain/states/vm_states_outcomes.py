"""What the state of a VM means for a drain: a wait that ends, a wait that does not, or unknown, with the sentence.

A wait with a known end does not block, a wait without one does. Remedies never advise to touch a migration in post-copy.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import vm_states, vm_states_motion, vm_states_times
from virt_admit.forecasts.drain.states.vm_states_failures import LOAD_REMEDY
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, Ruling, State, StateEffect, VmState
from virt_admit.forecasts.drain.states.vm_states_times import age, clock_words, duration, moment
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POD, RESOURCE_QUOTA, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_timeouts, migrations, vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature, Gate
from virt_admit.model.messages import count, cut
from virt_admit.model.problems import ProblemCause


class Case(NamedTuple):
    """A VMI in a state."""

    vmi: Object
    found: VmState
    cluster: Cluster


NO_RULING: Final = frozenset(
    (State.GONE, State.ENDED, State.STOPPING, State.STARTING, State.REFUSED, State.EXTERNAL, State.STILL)
)
"""States that the forecast of a VM at rest describes already."""


def ruling(vmi: Object, found: VmState, cluster: Cluster) -> Ruling | None:
    """Return what the state of a VMI that migrates means for a drain; None: the same as for a VM at rest."""
    if found.state in NO_RULING:
        return None
    result = _RULINGS[found.state](Case(vmi, found, cluster))
    return result._replace(reason="; ".join((result.reason, *_of_flags(found))))


def _of_flags(found: VmState) -> Iterator[str]:
    if Flag.ARRIVING in found.flags:
        yield f"it arrives from {found.source} in a moment, then has to leave again"
    if Flag.LEFTOVER in found.flags:
        yield "its eviction was asked for, and uncordoning does not end that"
    if Flag.TAINTED in found.flags:
        yield "it moves because of the drain taint of its node"
    if Flag.FOREIGN in found.flags:
        yield "it moves already for another reason"


# --- each state ----------------------------------------------------------------------------------------------------


def _stale_mark(case: Case) -> Ruling:
    reason = f"is marked for the evacuation of {case.found.detail}, which it has left: every eviction is refused"
    if versions.has_release(case.cluster, Feature.EVACUATE_CANCEL.since):
        remedy = shlex.join(("virtctl", "evacuate-cancel", "vmi", case.vmi.name, "-n", vms.namespace_of(case.vmi)))
    else:
        remedy = "remove status.evacuationNodeName of the VMI"
    return Ruling(StateEffect.BLOCKS, reason, remedy, ProblemCause.MARK_LEFT)


def _marked(case: Case) -> Ruling:
    if case.found.holders:
        return _queued(case)
    since = f" since {clock_words(case.found.since, case.cluster)}" if case.found.since else ""
    if case.found.late:
        reason = f"is marked for evacuation{since}, but KubeVirt has not created a migration"
        return Ruling(StateEffect.UNKNOWN, reason, f"look at the events of the VMI: {_describe(case.vmi)}")
    return Ruling(StateEffect.WAITS, f"is marked for evacuation{since}; KubeVirt creates its migration next")


def _two_pods(case: Case) -> Ruling:
    reason = f"waits until its old pod {case.found.detail} has ended"
    if case.found.late:
        remedy = typed(
            "see why it does not end", kubectl("describe", POD, case.found.detail, vms.namespace_of(case.vmi))
        )
        return Ruling(StateEffect.BLOCKS, reason, remedy, ProblemCause.POD_NOT_ENDING)
    return Ruling(StateEffect.WAITS, reason)


def _backoff(case: Case) -> Ruling:
    until = (
        f"; the next one starts at {moment(case.found.until)}"
        if case.found.until
        else "; the next one starts in minutes"
    )
    text = f" ({cut(case.found.failure.text, 120)})" if case.found.failure and case.found.failure.text else ""
    verb = "attempt" if case.found.attempts == 1 else "attempts"
    return Ruling(StateEffect.WAITS, f"{case.found.attempts} {verb} failed{text}{until}")


def _backup(case: Case) -> Ruling:
    drains = case.found.migration is not None and migrations.AUTOMATIC[0] in case.found.migration.annotations
    reason = f"waits for a backup{_words(case.found)}"
    if drains:
        return Ruling(StateEffect.WAITS, f"{reason}, which the migration of a drain aborts")
    return Ruling(StateEffect.UNKNOWN, reason, "wait until the backup has ended")


def _volume(case: Case) -> Ruling:
    until = f", until {moment(case.found.until)}" if case.found.until else ""
    return Ruling(
        StateEffect.WAITS, f"waits until its utility volume is detached{until}", "end its export or memory dump"
    )


def _quota(case: Case) -> Ruling:
    remedy = typed("raise the quota", kubectl("edit", RESOURCE_QUOTA, "", vms.namespace_of(case.vmi)))
    reason = f"a quota refuses its second pod{_words(case.found)}"
    return Ruling(StateEffect.BLOCKS, reason, remedy)


def _queued(case: Case) -> Ruling:
    found = case.found
    with_others = f" with {count(found.ahead, 'other VM')}" if found.ahead else ""
    holding = case.cluster.cached(_holding)
    held = [holding[key] for key in found.holders]
    worst = max(held, key=lambda each: each.effect)
    first = ", ".join(each.reason for each in held[:_MOST_HOLDERS])
    more = f" and {len(held) - _MOST_HOLDERS} more" if len(held) > _MOST_HOLDERS else ""
    reason = f"waits for a place{with_others}: {found.detail} and moves {first}{more}"
    return Ruling(worst.effect, reason, worst.remedy, ProblemCause.QUEUED)


_MOST_HOLDERS: Final = 3


def _holding(cluster: Cluster) -> Mapping[tuple[str, str], Ruling]:
    """Return for each VM whose migration holds a place how it ends, and the VM with its age as the reason."""
    keys = [key for some in vm_states_motion.motion(cluster).running.values() for key in some]
    return {key: _held(*key, cluster) for key in keys}


def _held(namespace: str, name: str, cluster: Cluster) -> Ruling:
    full_name = f"{namespace}/{name}"
    described = kubectl("describe", VMI, name, namespace)
    remedy = f"see why {full_name}, which holds the place, does not end: {described}"
    vmi = _vmi(namespace, name, cluster)
    if vmi is None:
        return Ruling(StateEffect.UNKNOWN, full_name, remedy)
    state = vm_states.of(vmi, cluster)
    own = _RULINGS[state.state](Case(vmi, state, cluster)) if state.state not in NO_RULING else None
    since = f" since {age(state.since, cluster)}" if state.since and clock.now(cluster) else ""
    effect = own.effect if own is not None else StateEffect.WAITS
    return Ruling(effect, f"{full_name}{since}", remedy if effect else "")


def _vmi(namespace: str, name: str, cluster: Cluster) -> Object | None:
    try:
        return cluster.get(VMI, namespace, name)
    except Unseen:
        return None


def _no_target(case: Case) -> Ruling:
    reason = f"KubeVirt has not created its target pod since {clock_words(case.found.since, case.cluster)}"
    return Ruling(StateEffect.UNKNOWN, reason, f"look at the events of the VMI: {_describe(case.vmi)}")


def _unschedulable(case: Case) -> Ruling:
    until = (
        f"; given up at {moment(case.found.until)}, then repeated" if case.found.until else "; given up, then repeated"
    )
    return Ruling(StateEffect.WAITS, f"kube-scheduler found no node for its target pod{_words(case.found)}{until}")


def _target_pending(case: Case) -> Ruling:
    until = f"; given up at {moment(case.found.until)}, then repeated" if case.found.until else ""
    reason = (
        f"its target pod{_on(case.found)} has not started since {clock_words(case.found.since, case.cluster)}{until}"
    )
    return Ruling(StateEffect.WAITS, reason)


def _target_not_ready(case: Case) -> Ruling:
    own = case.found.migration is not None and case.found.detail and "virt-launcher" in case.found.detail
    pod = "its target pod" if own else "the pod that attaches its volumes"
    reason = f"{pod}{_on(case.found)} is not ready since {clock_words(case.found.since, case.cluster)}"
    name = (case.found.detail or "").rpartition("/")[2]
    described = kubectl("describe", POD, name, vms.namespace_of(case.vmi))
    return Ruling(StateEffect.WAITS, reason, typed("if it lasts, see why", described) if name else "")


def _preparing(case: Case) -> Ruling:
    reason = f"virt-handler{_on(case.found)} prepares its migration since {clock_words(case.found.since, case.cluster)}"
    return Ruling(StateEffect.WAITS, reason)


def _running(case: Case) -> Ruling:
    settings = migration_timeouts.settings(case.vmi, case.vmi.at("status", "migrationState"), case.cluster)
    since = f" since {age(case.found.since, case.cluster)}" if case.found.since and clock.now(case.cluster) else ""
    last = vm_states_times.last_duration(case.vmi, case.cluster)
    usual = f", its last one took {duration(last)}" if last is not None and case.found.late else ""
    reason = f"migrates{_to(case.found)}{since}{usual}{_end(case)}"
    ends = settings is not None and settings.ends_at_deadline and case.found.until is not None
    if not case.found.late or (ends and not versions.gate_is_known_on(case.cluster, Gate.MIGRATION_STALL_DETECTION)):
        return Ruling(StateEffect.WAITS, reason)
    return Ruling(StateEffect.UNKNOWN, reason, LOAD_REMEDY)


def _end(case: Case) -> str:
    """Return what happens at the deadline of a running migration."""
    settings = migration_timeouts.settings(case.vmi, case.vmi.at("status", "migrationState"), case.cluster)
    limit = migration_timeouts.seconds(case.vmi, settings)
    if settings is None or limit is None:
        return "; it has no deadline" if settings is not None and not settings.completion else ""
    at = (
        f"at {moment(case.found.until)}"
        if case.found.until
        else f"{duration(timedelta(seconds=limit))} after its start"
    )
    if settings.post_copy:
        return f"; switches to post-copy {at}"
    if settings.disruption:
        return f"; its guest is paused {at} until the copy ends"
    return f"; cancelled {at} and repeated"


def _paused(case: Case) -> Ruling:
    until = f", at most until {moment(case.found.until)}" if case.found.until else ""
    return Ruling(StateEffect.WAITS, f"migrates{_to(case.found)}; its guest is paused until the copy ends{until}")


def _post_copy(case: Case) -> Ruling:
    target = case.found.target or "its target node"
    return Ruling(StateEffect.WAITS, f"runs on {target} already, its memory follows (post-copy)")


def _aborting(case: Case) -> Ruling:
    reason = f"its migration{_to(case.found)} is being cancelled since {clock_words(case.found.since, case.cluster)}"
    if case.found.late:
        return Ruling(StateEffect.UNKNOWN, reason, f"look at the events of the VMI: {_describe(case.vmi)}")
    return Ruling(StateEffect.WAITS, reason)


def _arrived(case: Case) -> Ruling:
    return Ruling(StateEffect.WAITS, f"has left for {case.found.target}; its old pod ends")


def _not_closed(case: Case) -> Ruling:
    waits = f": {case.found.detail}" if case.found.detail else ""
    remedy = typed("if it lasts, see that condition", _describe(case.vmi))
    return Ruling(StateEffect.WAITS, f"has migrated, but its migration is still open{waits}", remedy)


def _decentralized(case: Case) -> Ruling:
    since = clock_words(case.found.since, case.cluster)
    reason = f"migrates between clusters since {since}, so its end cannot be determined"
    return Ruling(StateEffect.UNKNOWN, reason, "wait for the other cluster")


_RULINGS: Final[dict[State, Callable[[Case], Ruling]]] = {
    State.STALE_MARK: _stale_mark,
    State.MARKED: _marked,
    State.TWO_PODS: _two_pods,
    State.BACKOFF: _backoff,
    State.BLOCKED_BY_BACKUP: _backup,
    State.BLOCKED_BY_VOLUME: _volume,
    State.QUOTA: _quota,
    State.QUEUED: _queued,
    State.NO_TARGET: _no_target,
    State.UNSCHEDULABLE: _unschedulable,
    State.TARGET_PENDING: _target_pending,
    State.TARGET_NOT_READY: _target_not_ready,
    State.PREPARING: _preparing,
    State.RUNNING: _running,
    State.PAUSED: _paused,
    State.POST_COPY: _post_copy,
    State.ABORTING: _aborting,
    State.ARRIVED: _arrived,
    State.NOT_CLOSED: _not_closed,
    State.DECENTRALIZED: _decentralized,
}


def _words(found: VmState) -> str:
    return f": {cut(found.detail, 200)}" if found.detail else ""


def _to(found: VmState) -> str:
    return f" to {found.target}" if found.target else ""


def _on(found: VmState) -> str:
    return f" on {found.target}" if found.target else ""


def _describe(vmi: Object) -> str:
    return kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
