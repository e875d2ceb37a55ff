"""Whether what ``drain`` says of a VM at a moment is what KubeVirt's controllers did next.

Each check yields what disagrees. A check says nothing of what would have come after the end of the
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tests.upstream.moment_cases import FAILED
from tests.upstream.moment_future import NEVER, TICK, Future, Move
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.model.kubernetes import clock

LOOK: Final = 5.0
"""Seconds between two looks of KubeVirt at a migration that waits for a place,
and of a drain at its pods.
"""
SLACK: Final = 1.3
"""Seconds: times in objects have no fractions, and the fake kubelet looks every 100 ms."""


@dataclass(frozen=True)
class Case:
    """What is said of one VM at one moment, and the run."""

    node: str
    said: Forecast
    at: float
    """Seconds since the beginning."""
    time: str
    """That of the API server."""
    future: Future
    behaviour: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]]
    """What users do meanwhile."""

    @property
    def vm(self) -> str:
        return self.said.vmi.full_name

    @property
    def move(self) -> Move | None:
        """The migration that the state rests on."""
        found = self.said.state.migration
        return (
            self.future.moves.get(found.metadata["uid"].text or "") if found is not None else None
        )

    @property
    def how(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.behaviour.get(self.vm, {})
        return found

    def seconds(self, time: datetime) -> float:
        """Return a time of the objects in seconds since the beginning,
        at most a second too early.
        """
        now = clock.instant(self.time)
        assert now is not None
        return self.at + (time - now).total_seconds()

    def is_cancelled(self, before: float) -> bool:
        """Whether a user cancels migrations of the VM from now on until that time."""
        own = (
            each["at"]
            for each in self.requests
            if each["do"] == "cancel" and self.vm.endswith(f"/{each['vmi']}")
        )
        return any(self.at - TICK <= at <= before for at in own)

    def is_over(self, at: float) -> bool:
        """Whether the run ended before that time."""
        return at >= self.future.end - TICK


def differences(case: Case) -> Iterator[str]:
    """Yield what disagrees."""
    state = case.said.state
    check = _CHECKS.get(state.state)
    if check is None:
        yield "no such state in this run"
        return
    yield from _stage(case)
    yield from check(case)
    yield from _flags(case)
    yield from _outcome(case)


# --- the state ------------------------------------------------------------------------------------

_BEFORE: Final = frozenset(
    (State.QUEUED, State.BACKOFF, State.TWO_PODS, State.NO_TARGET, State.STILL)
)


def _stage(case: Case) -> Iterator[str]:
    """Yield that the migration was at another stage."""
    state, move = case.said.state.state, case.move
    if move is None:
        running = [
            each
            for each in case.future.of(case.vm)
            if each.created < case.at - TICK and each.ended > case.at + TICK
        ]
        if running and state is not State.ARRIVED:
            yield f"its migration {running[-1].phase} is not seen"
        return
    stages = (
        (move.created, _BEFORE),
        (move.pod, {State.UNSCHEDULABLE, State.TARGET_PENDING}),
        (move.bound, {State.TARGET_PENDING}),
        (move.bound + 1 + case.how.get("start", 0), {State.TARGET_NOT_READY, State.TARGET_PENDING}),
        (move.entered("Scheduled"), {State.PREPARING}),
        (move.entered("PreparingTarget"), {State.PREPARING}),
        (move.entered("Running"), {State.RUNNING, State.ABORTING}),
        (move.ended, {State.ARRIVED, State.NOT_CLOSED, State.STILL, State.BACKOFF}),
    )
    possible: set[State] = set()
    for number, (begin, states) in enumerate(stages):
        end = min((later for later, _ in stages[number + 1 :]), default=NEVER)
        if begin - TICK <= case.at <= end + TICK:
            possible |= states
    cancelled = state is State.ABORTING and move.phase == "Failed" and move.ended >= case.at - TICK
    if state not in possible and not cancelled:
        yield f"its migration was at another stage: {', '.join(sorted(possible))}"


def _still(case: Case) -> Iterator[str]:
    if case.move is not None:
        yield from _starts(case)
    elif case.said.vmi.at("status", "evacuationNodeName").text:
        yield "it is marked"


def _marked(case: Case) -> Iterator[str]:
    if case.said.state.holders:
        yield from _queued(case)
    else:
        yield from _starts(case)


def _starts(case: Case) -> Iterator[str]:
    """Yield that its target pod does not follow although a place stays free."""
    last = case.at + 2 * LOOK + SLACK
    steps = [case.at + number * TICK for number in range(int((last - case.at) / TICK))]
    started = min((move.pod for move in case.future.after(case.vm, case.at)), default=NEVER)
    ends = min((move.ended for move in case.future.after(case.vm, case.at)), default=NEVER)
    if min(started, ends) <= last or case.is_over(last) or case.how.get("refused"):
        return
    if all(case.future.has_place(at, case.node) for at in steps):
        yield f"a place stays free, and no target pod follows before {last:.1f}"


def _queued(case: Case) -> Iterator[str]:
    state = case.said.state
    here = f"{case.node} may send" in state.detail
    said = {"/".join(key) for key in state.holders}
    real = [
        case.future.holders(at, case.node if here else None)
        for at in (case.at - TICK, case.at, case.at + TICK)
    ]
    if said not in real and not frozenset.intersection(*real) <= said <= frozenset.union(*real):
        yield f"the places are held by {', '.join(sorted(real[1]))}"
    holding = (
        move
        for move in case.future.moves.values()
        if move.vm in said and move.pod <= case.at + TICK
    )
    ends = [move.ended for move in holding if move.ended > case.at - TICK]
    first = min(ends, default=case.at)
    for move in case.future.after(case.vm, case.at):
        if move.created > case.at or move.pod > case.at:
            if move.pod < first - TICK:
                yield f"it starts at {move.pod:.1f}, before one of these ends at {first:.1f}"
            break
    if "place" in case.said.reason and not any(name in case.said.reason for name in said):
        yield "the reason names none of those that hold the places"
    yield from _place(case, here=here)


def _place(case: Case, *, here: bool) -> Iterator[str]:
    """Yield that more VMs go before it than wait, or that one of a lower priority does."""
    state = case.said.state
    if not 1 <= state.place <= state.waiting:
        yield f"it is {state.place} of {state.waiting}"
    own = next(
        (move for move in case.future.after(case.vm, case.at) if move.pod >= case.at - TICK), None
    )
    if own is None or own.pod == NEVER:
        return
    before = {
        move.vm
        for move in case.future.moves.values()
        if case.at + TICK < move.pod < own.pod
        and move.created <= case.at - TICK
        # one that pauses waits for its next attempt, not for a place
        and not case.future.pauses(move, case.at)
        and (not here or move.source == case.node)
    }
    if len(before) > state.waiting - 1:
        yield f"{len(before)} VMs that waited go before it, of {state.waiting - 1}"


def _backoff(case: Case) -> Iterator[str]:
    state, move = case.said.state, case.move
    failed = [
        each for each in case.future.of(case.vm) if each.evacuates and each.ended <= case.at + TICK
    ]
    if not failed or failed[-1].phase != "Failed":
        yield "its last migration did not fail"
    if move is not None and move.ended <= case.at + SLACK:
        return  # it has failed, and the next one does not exist yet
    if state.until is None or move is None:
        yield "the end of the pause is not said"
        return
    end = case.seconds(state.until)
    if move.pod < end - SLACK:
        yield f"it starts at {move.pod:.1f}, before the end of the pause at {end:.1f}"
    late = end + LOOK + SLACK
    steps = [end + number * TICK for number in range(int((late - end) / TICK))]
    waits = (
        not case.is_over(late) and min(move.pod, move.ended) > late and not case.how.get("refused")
    )
    if waits and all(case.future.has_place(at, case.node) for at in steps):
        yield f"it does not start at the end of the pause at {end:.1f}"
    if (
        vm_states_times.moment(state.until, clock.instant(case.time)) not in case.said.reason
        and case.said.outcome is VmOutcome.MIGRATES
    ):
        yield "the reason does not say when the next one starts"
    copied = case.how.get("failures") and any("Running" in each.phases for each in failed[-1:])
    if copied and (state.failure is None or state.failure.text != FAILED):
        yield f"the failure is {state.failure}"


_STARTED: Final = ("Scheduled", "PreparingTarget", "TargetReady", "Running")
"""The phases of a migration whose target pod runs.
The fake kubelet may miss one that lasts shorter than its tick.
"""


def _times_out(case: Case) -> Iterator[str]:
    """Yield that the target pod neither goes on nor is given up at the end that is said."""
    state, move = case.said.state, case.move
    if move is not None and move.ended <= case.at + SLACK:
        return  # its target pod is gone already
    if state.until is None or move is None:
        yield "the end is not said"
        return
    end = case.seconds(state.until)
    started = min(move.entered(phase) for phase in _STARTED)
    goes_on = move.bound if state.state is State.UNSCHEDULABLE else started
    if min(goes_on, move.ended) > end + SLACK + 1 and not case.is_over(end + SLACK + 1):
        yield f"it is not given up at {end:.1f}"
    cancelled = Flag.FOREIGN in state.flags or case.is_cancelled(move.ended)
    unseen = (
        state.state is State.TARGET_PENDING and move.bound == NEVER and case.at - move.pod < SLACK
    )
    if (
        move.phase == "Failed"
        and move.ended < min(end, goes_on) - SLACK
        and not cancelled
        and not unseen
    ):
        yield f"it is given up at {move.ended:.1f}, before {end:.1f}"
    if state.state is State.UNSCHEDULABLE and "nodes are available" not in case.said.reason:
        yield "the words of kube-scheduler are not said"


def _not_ready(case: Case) -> Iterator[str]:
    if not case.how.get("ready"):
        yield "its target pod is ready as soon as it runs"


def _preparing(case: Case) -> Iterator[str]:
    move = case.move
    if move is not None and move.phase != "Failed" and move.entered("Running") < case.at - TICK:
        yield "it copies already"


def _running(case: Case) -> Iterator[str]:
    state, move = case.said.state, case.move
    if move is None:
        return
    # the reason is that of the drain, whose end this migration is not
    fails = "so will the next" in case.said.reason
    if state.target != move.target or not (fails or move.target in case.said.reason):
        yield f"it migrates to {move.target}"
    if fails and move.phase == "Succeeded":
        yield "it does not fail"
    start = case.seconds(state.since) if state.since is not None else NEVER
    if abs(start - move.entered("Running")) > SLACK:
        yield f"it began to copy at {move.entered('Running'):.1f}, not at {start:.1f}"
    if (
        state.until is not None
        and move.ended > case.seconds(state.until) + SLACK
        and not case.is_over(move.ended)
    ):
        yield "it goes on after its deadline"


def _aborting(case: Case) -> Iterator[str]:
    move = case.move
    if move is not None and move.ended != NEVER and move.phase != "Failed":
        yield f"its migration ends as {move.phase}"
    if move is not None and move.ended == NEVER and not case.is_over(case.at + LOOK):
        yield "its migration goes on"


def _arrived(case: Case) -> Iterator[str]:
    done = [
        each
        for each in case.future.of(case.vm)
        if each.phase == "Succeeded" and each.ended <= case.at + 2 * TICK
    ]
    if not done or done[-1].target != case.said.state.target:
        yield "it has not arrived there"


def _not_closed(case: Case) -> Iterator[str]:
    move = case.move
    if move is not None and (move.phase != "Succeeded" or move.ended > case.at + SLACK):
        yield "its migration stays open"


def _two_pods(case: Case) -> Iterator[str]:
    gone = case.future.result["gone"].get(case.said.state.detail, NEVER)
    if gone < case.at - TICK:
        yield f"the pod {case.said.state.detail} ended at {gone:.1f}"
    for move in case.future.after(case.vm, case.at):
        if move.pod > case.at + TICK:
            if move.pod < gone - TICK:
                yield f"it starts at {move.pod:.1f}, before its old pod ends at {gone:.1f}"
            break


def _no_target(case: Case) -> Iterator[str]:
    if not case.how.get("refused"):
        yield "the API server does not refuse its target pod"


def _refused(case: Case) -> Iterator[str]:
    if any(
        move.evacuates and move.created > case.at and move.phase == "Succeeded"
        for move in case.future.of(case.vm)
    ):
        yield "it migrates"


_CHECKS: Final[dict[State, Callable[[Case], Iterator[str]]]] = {
    State.STILL: _still,
    State.MARKED: _marked,
    State.QUEUED: _queued,
    State.BACKOFF: _backoff,
    State.UNSCHEDULABLE: _times_out,
    State.TARGET_PENDING: _times_out,
    State.TARGET_NOT_READY: _not_ready,
    State.PREPARING: _preparing,
    State.RUNNING: _running,
    State.ABORTING: _aborting,
    State.ARRIVED: _arrived,
    State.NOT_CLOSED: _not_closed,
    State.TWO_PODS: _two_pods,
    State.NO_TARGET: _no_target,
    State.REFUSED: _refused,
}


# --- the flags and the outcome --------------------------------------------------------------------


def _flags(case: Case) -> Iterator[str]:
    flags, move = case.said.state.flags, case.move
    if move is not None and (Flag.FOREIGN in flags) == move.evacuates:
        yield (
            "the evacuation controller created its migration"
            if move.evacuates
            else "a user asked for its migration"
        )
    if (
        Flag.ARRIVING in flags
        and move is not None
        and move.target != case.node
        and case.said.state.state is not State.TWO_PODS
    ):
        yield f"it goes to {move.target}"
    if (
        Flag.LEFTOVER in flags
        and not list(case.future.after(case.vm, case.at))
        and not case.is_over(case.at + 3 * LOOK)
    ):
        yield "nothing moves it although it is marked"


def _outcome(case: Case) -> Iterator[str]:
    """Yield that a VM leaves which is said to block the drain,
    although nothing else has changed.
    """
    if case.said.outcome is VmOutcome.BLOCKS and case.said.state.flags.count(Flag.ARRIVING) == 0:
        leaves, changed = (
            case.future.leaves(case.vm, case.node, case.at),
            case.future.changed(case.at + 2 * TICK),
        )
        if leaves < changed - TICK:
            yield f"it leaves at {leaves:.1f}, and nothing changes before {changed:.1f}"
