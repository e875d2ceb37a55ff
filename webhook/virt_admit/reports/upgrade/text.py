"""A rehearsal as text that fits a screen."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.forecasts.drain.targets import closed_targets
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal, Stop
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.forecasts.upgrade.upgrade_progress import NodeInFlight, UpgradeProgress
from virt_admit.forecasts.upgrade.vm_interruptions import VmMoves
from virt_admit.model.commands import argument, shell
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import command_of, count, ended, names
from virt_admit.model.node_updates.node_phases import Phase
from virt_admit.model.problems import ProblemCause
from virt_admit.model.sanitize import indented
from virt_admit.reports.drain.words import cost, down_until, yes
from virt_admit.reports.unavailable_data import not_available

_MOST: Final = 8
"""Waves, stops and VMs that are listed; the rest is counted."""
_LONG: Final = 60
"""A reason or a remedy of so many characters is written once."""


PLATFORM: Final = "The platform reports besides, though no node is known to wait for it:"


def text(result: Rehearsal, start: datetime.datetime | None = None) -> str:
    """Return the verdict first, then what stops it, the waves,
    the VMs and the settings that would save time.

    An operator that is stuck comes before the answer about the nodes, unless the nodes are stopped
    too, or it is of another cluster.
    """
    after = [each for each in result.operators if follows(each, result.stops)]
    own = [
        *_operators(
            each for each in result.operators if each.holds is not False and each not in after
        )
    ]
    hosted = [*_operators(each for each in result.operators if each.holds is False)]
    first, later = ([], own + hosted) if result.nodes_complete is False else (own, hosted)
    lines = [
        *first,
        _of_nodes(result, start),
        *_release(result),
        *_progress(result.progress, result.stops),
        "",
    ]
    lines += [*later, ""] if later else []
    lines += [*_stops(result.stops), *_operators(after), *([""] * bool(after))]
    lines += [*_refused(result), ""] if result.stops and result.refused is not None else []
    if result.reported:
        waits = any(each.is_step for each in result.operators) and not result.stops
        lines += [PLATFORM] if result.possible or waits else []
        lines += [*map(str, result.reported), ""]
    lines += _waves(result, start)
    lines += [*_vms(result), *filter(None, (result.old_launchers,))]
    lines += closed_targets.lines(result.closed)
    lines += _health_checks(result)
    lines += [
        f"{saving.setting} {saving.from_} → {saving.to} saves up to {hours(saving.saves)}"
        for saving in result.faster
    ]
    lines += _if_fixed(result)
    if result.conditions:
        lines += ["", f"The estimate rests on: {'; '.join(result.conditions)}."]
    if result.unseen:
        lines += ["", *not_available(result.unseen)]
    return "\n".join(map(indented, lines))


def verdict(result: Rehearsal, start: datetime.datetime | None = None) -> str:
    """Return what is stuck besides the nodes, whether the upgrade of the nodes completes,
    and in which time.
    """
    return f"{held(result)}{_of_nodes(result, start)}"


def held(result: Rehearsal) -> str:
    """Return which operator is stuck besides the nodes, with a space; empty: none is, or the nodes
    stop as well.
    """
    stuck = [each for each in result.operators if each.holds is not False]
    return f"{ended(stuck[0].reason)} " if stuck and result.nodes_complete is not False else ""


def _of_nodes(result: Rehearsal, start: datetime.datetime | None) -> str:
    kept = _maintained(result)
    nodes = sum(name not in kept for wave in result.waves for name in wave.nodes)
    if result.nodes_complete is False:
        words = stops(result.stops, result.operators)
        first = words.startswith(_WAITS) and nodes
        after = f" once {count(nodes, 'node')} {'is' if nodes == 1 else 'are'} updated"
        return f"No: the upgrade {words}{after if first else ''}."
    if result.possible is False and result.nodes_complete is None:
        return f"No: that holds it up. {NODES_UNKNOWN} See below."
    if result.possible is None or result.duration is None:
        return "Unknown: it cannot be determined whether the upgrade completes. See below."
    until = f", until {result.duration.clock(start)}" if start is not None else ""
    so_far = result.progress
    begun = so_far is not None and (
        so_far.done or any(not each.maintenance for each in so_far.in_flight)
    )
    more = "more " if begun else ""
    after = f" after {before(result.driver)}" if result.before_nodes else ""
    what = f"{nodes} {more}{'node' if nodes == 1 else 'nodes'} {_BY[result.driver]}"
    ends = f"{what}in {span(result.duration)}{after}{until}."
    return f"{_yes(result)}: {ends}{cost(result.stopped)}"


def before(driver: Driver) -> str:
    """Return what an update does before the nodes."""
    return "the operators" if driver is Driver.MACHINE_CONFIG else "that"


NODES_UNKNOWN: Final = "It cannot be determined whether the update of the nodes completes."


def _yes(result: Rehearsal) -> str:
    if result.possible is False:
        return "The nodes do not hold it up. Their update alone would complete"
    stands = hosted(result)
    word = f"{yes(result.stopped)}{f' for this cluster, no for {stands}' if stands else ''}"
    if result.refused is None:
        return f"{word} for the pools that are not paused" if result.paused else word
    return f"{word} for {result.refused.within}, no for {result.refused.targets}"


def hosted(result: Rehearsal) -> str:
    """Return what stands of clusters that this one hosts, whose updates the answer does not hold
    for; empty: nothing does.
    """
    stands = (each for each in result.operators if each.is_hosted)
    return names(dict.fromkeys(f"{each.kind} {each.namespace}/{each.name}" for each in stands), 80)


def _release(result: Rehearsal) -> Iterator[str]:
    """Yield how far an update of OpenShift is, what it leaves out,
    and what refuses the next release.
    """
    if result.before_nodes:
        times = ": the times below count from then" if result.waves else ""
        told = any(each.is_step and each.reason == result.before_nodes for each in result.operators)
        if not told:
            yield f"{result.before_nodes}{times}."
        elif times:
            yield "The times below count from then."
    yield from map(ended, result.paused)
    if not result.stops:  # what stops the nodes may be what refuses
        yield from _refused(result)


def _refused(result: Rehearsal) -> Iterator[str]:
    """Yield what refuses the next release, without the words of a node that is a stop."""
    if result.refused is not None:
        at = {each.remedy: each for each in result.stops if each.node}
        for refusal in result.refused.by[:_MOST]:
            reason, same = refusal.reason, at.get(refusal.remedy)
            if same is not None:
                reason = reason.replace(same.reason, f"as of {same.node} above")
            remedy = refusal.remedy if same is None else f"the same as at {same.node}"
            yield f"No for {result.refused.targets}: {ended(reason)}"
            yield f"  to do: {remedy}"


_BY: Final = {
    Driver.MACHINE_CONFIG: "in the order of the MachineConfigPools ",
    Driver.CLUSTER_API: "in the order of the MachineDeployments ",
    Driver.PLAIN: "",
}


def span(duration: Range) -> str:
    """Return a duration such as ``2 h to 3 h``, or ``2 h`` if both ends are equal."""
    return " to ".join(dict.fromkeys((hours(duration.low), hours(duration.high))))


def _progress(progress: UpgradeProgress | None, stops: Sequence[Stop]) -> Iterator[str]:
    if progress is None:
        return
    yield so_far(progress)
    for node in progress.in_flight[:_MOST]:
        told = any(node.waits_for and node.waits_for in stop.reason for stop in stops)
        hidden = told and node.phase is Phase.FAILING
        yield in_flight(replace(node, waits_for="") if hidden else node)
    if len(progress.in_flight) > _MOST:
        yield f"and {len(progress.in_flight) - _MOST} more"
    if progress.next:
        yield f"Next: {some(progress.next)}."
    yield from (f"{note}." for note in progress.notes)


def some(nodes: Sequence[str]) -> str:
    """Return the first of these nodes and the number of the others."""
    return names(nodes, 60)


def so_far(progress: UpgradeProgress) -> str:
    """Return how many nodes are done."""
    if not progress.done and all(node.maintenance for node in progress.in_flight):
        return "The update of no node is known to have begun."
    verb = "is" if 1 in (len(progress.done), progress.total) else "are"
    if progress.in_flight and not any(node.begun for node in progress.in_flight):
        have = "has" if len(progress.done) == 1 else "have"
        number = f"{len(progress.done)} of {count(progress.total, 'node')}"
        return f"No node is being updated. {number} {have} the configuration of the pool."
    return f"{len(progress.done)} of {count(progress.total, 'node')} {verb} done."


def in_flight(node: NodeInFlight) -> str:
    """Return what a node is doing, since when, and what it waits for."""
    waits = f" and waits for {node.waits_for}" if node.waits_for else ""
    if node.phase is Phase.FAILING:
        ago = f" for {node.age}" if node.age and node.exact else ""
        begun = f", which began {node.age} ago," if node.age and not node.exact else ""
        said = f": {node.waits_for}" if node.waits_for else ""
        if not node.begun:
            return f"{node.node} is degraded{ago}{said}."
        return f"The update of {node.node}{begun} has been failing{ago}{said}."
    now, lasting = _DOES[node.phase]
    if node.maintenance and node.phase is Phase.UPDATING:
        lasting = f"in maintenance ({node.maintenance})"
        now = f"is {lasting}"
    return f"{node.node} {f'has been {lasting} for {node.age}' if node.age else now}{waits}."


_DOES: Final = {
    Phase.DRAINING: ("drains", "draining"),
    Phase.UPDATING: ("is being updated", "updating"),
    Phase.REBOOTING: ("reboots", "rebooting"),
    Phase.RETURNING: ("comes back", "coming back"),
}


def _operators(operators: Iterable[StuckOperator]) -> Iterator[str]:
    """Yield which operators do not become ready. The nodes do not wait for them."""
    for each in islice(operators, _MOST):
        yield f"{'No: ' * each.is_step}{ended(each.reason)}"
        yield f"  to do: {each.remedy}"


def by_cause(stops: Sequence[Stop]) -> list[list[Stop]]:
    """Return the stops by their cause: one budget may stop the upgrade at several nodes."""
    alike = grouped(stops, lambda stop: replace(stop, node="*" if stop.node else ""))
    return list(alike.values())


def stops(found: Sequence[Stop], operators: Iterable[StuckOperator] = ()) -> str:
    """Return what an upgrade does that does not complete; operators that hold it up besides are
    causes too.
    """
    if found and all(map(leaves_out, found)):
        return f"leaves out {count(len(found), 'node')}"
    held = sum(each.holds is True and not follows(each, found) for each in operators)
    if found and not held and all(each.awaits for each in found):
        return f"{_WAITS}{names(dict.fromkeys(each.awaits for each in found))}"
    return f"stops ({count(_causes(found) + held, 'cause')})"


_WAITS: Final = "waits for "


def follows(operator: StuckOperator, found: Iterable[Stop]) -> bool:
    """Return whether an operator is held by a node alone at which the upgrade stops."""
    node = operator.follows
    return bool(node) and any(
        node == stop.node or re.search(rf"(?<![\w.-]){re.escape(node)}(?![\w-]|\.\w)", stop.reason)
        for stop in found
    )


def leaves_out(stop: Stop) -> bool:
    """Whether the updater goes on without the node, which then is never updated."""
    return stop.problem is not None and stop.problem.cause in _LEFT_OUT


_LEFT_OUT: Final = (ProblemCause.POOL_AMBIGUOUS, ProblemCause.POOL_MISSING)


def _causes(stops: Sequence[Stop]) -> int:
    """Return how many causes stops have, without those that only lead to what stops a node."""
    ends = {shell("virt-admit", "drain", argument(stop.node)) for stop in stops if stop.node}
    own = [stop for stop in stops if stop.node or command_of(stop.remedy) not in ends]
    first = (same[0] for same in by_cause(own))
    return len({(_alike(stop), stop.remedy or stop.reason) for stop in first})


def _alike(stop: Stop) -> str:
    """Return why an upgrade stops without the name of the VM that it stops for, by which the names
    of its claims begin, too.
    """
    subject, _, why = stop.reason.partition(": ")
    name = subject.rpartition("/")[2]
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?!\w)", "*", why) if why else stop.reason


def _stops(stops: Sequence[Stop]) -> Iterator[str]:
    groups = by_cause(stops)
    said: dict[str, str] = {}
    remedies: dict[str, tuple[str, str]] = {}
    for same in groups[:_MOST]:
        stop, where = same[0], names(each.node for each in same)
        subject, _, why = stop.reason.partition(": ")
        first = said.setdefault(_alike(stop), subject)
        is_new = first == subject or len(why) < _LONG
        reason = stop.reason if is_new else f"{subject}: the same as {first}"
        at = "leaves out" if leaves_out(stop) else "stops at"
        does = "waits" if stop.awaits else "stops"
        yield f"{at} {where}: {reason}" if stop.node else f"{does}: {reason}"
        done, of = remedies.setdefault(stop.remedy, (where, subject))
        told = len(stop.remedy) >= _LONG and done and (done != where or of != subject)
        as_first = f"at {done}" if done != where else f"for {of}"
        yield f"  to do: {f'the same as {as_first}' if told else stop.remedy}"
        if stop.behind:
            yield f"  behind: {names(map(str, stop.behind), 80)}"
    if len(groups) > _MOST:
        yield f"and {len(groups) - _MOST} more stops"
    if stops:
        yield ""


def _if_fixed(result: Rehearsal) -> Iterator[str]:
    """Yield how the upgrade would go if problems were fixed."""
    if result.if_fixed is None or not result.assumed:
        return
    possible, duration = result.if_fixed.possible, result.if_fixed.duration
    answer = {
        True: f"it completes in {span(duration)}" if duration is not None else "it completes",
        False: "it does not complete",
        None: "it cannot be determined whether it completes",
    }[possible]
    yield (
        f"If {count(len(result.assumed), 'problem')} were fixed, {answer}: "
        f"{names(map(str, result.assumed), 120)}"
    )


def _waves(result: Rehearsal, start: datetime.datetime | None) -> Iterator[str]:
    waves = result.waves
    under_way = result.progress.in_flight if result.progress is not None else ()
    flying, kept = {each.node for each in under_way}, _maintained(result)
    some_hidden = len(waves) > _MOST + 1  # a line that hides one wave saves none
    shown = [*waves[: _MOST - 1], waves[-1]] if some_hidden else waves
    for number, wave in enumerate(shown):
        if number == _MOST - 1 and some_hidden:
            yield f"  … {len(waves) - _MOST} more waves …"
        first = result.before_nodes and start is None and wave.start.high == 0
        at = f"after {before(result.driver)}" if first else when(wave.start, start)
        at = "after a wait" if wave.waits else at
        begins = "has begun" if flying.issuperset(wave.nodes) else f"begins {at}"
        times = f"{begins}, ends {when(wave.end, start)}"
        told = "in maintenance, not counted" if kept.issuperset(wave.nodes) else times
        yield f"  {told}: {some(wave.nodes)}"
        yield from (f"    waits for: {each}" for each in wave.waits)
    if waves:
        yield ""


def _maintained(result: Rehearsal) -> frozenset[str]:
    """Return the nodes that are in maintenance and not being updated, as far as is known."""
    under_way = result.progress.in_flight if result.progress is not None else ()
    return frozenset(each.node for each in under_way if each.maintenance)


def _vms(result: Rehearsal) -> Iterator[str]:
    if not result.vms:
        return
    down = [vm for vm in result.vms if vm.is_down_in_place]
    moves = Counter(vm.moves for vm in result.vms if not vm.is_down_in_place)
    number = "all" if len(down) == len(result.vms) else len(down)
    total, place = count(len(result.vms), "VM"), f"{number} shut down on their nodes"
    halts = result.nodes_complete is False and not all(map(leaves_out, result.stops))
    until = "until then" if all(stop.awaits for stop in result.stops) else "before it stops"
    before = f" {until}" if halts else ""
    if moves.keys() - {0}:
        counted = (
            f"{each} {_TIMES.get(times, f'{times} times')}" for times, each in sorted(moves.items())
        )
        said = ", ".join((*counted, *((place,) if down else ())))
        yield f"{total}, migrated or restarted{before}: {said}"
    elif down:
        yield f"{total}: {place}{before}{f', {moves[0]} stay there' if moves else ''}"
    elif not result.unseen:  # else no run says it
        yield f"{total}: {f'none moves{before}' if before else 'all stay on their nodes'}"
    often = [f"{vm.namespace}/{vm.name} ({vm.moves})" for vm in result.vms if vm.moves > 1]
    if often:
        yield f"  more than once: {names(often)}"
    down.sort(key=lambda vm: (vm.outcome is VmOutcome.STOPS, vm.unless))
    ends = grouped(down, lambda vm: down_until(vm.outcome, vm.unless, several=True))
    for end, which in ends.items():
        yield f"  {end}: {names(f'{vm.namespace}/{vm.name}' for vm in which)}"
    yield from _waits(result.vms)
    yield from _risks(result.vms)


def _waits(vms: Iterable[VmMoves]) -> Iterator[str]:
    """Yield the VMs for which no node has room for a while after their guests were shut down."""
    for_good = [f"{vm.namespace}/{vm.name}" for vm in vms if vm.without_room is None]
    found = [(vm, vm.without_room) for vm in vms if vm.without_room]
    if found:
        each = (
            f"{vm.namespace}/{vm.name} (down for up to {_down(vm, waits)})" for vm, waits in found
        )
        yield f"  shut down, and start once a node has room, their own at the latest: {names(each)}"
    if for_good:
        yield f"  shut down, and no node has room at the end: {names(for_good)}"


def _down(vm: VmMoves, waits: int) -> str:
    """Return how long a guest is down in all, in whole minutes."""
    longest = waits if vm.downtime is None or vm.downtime.high is None else vm.downtime.high
    return hours(-(-longest // 60) * 60)


def _risks(vms: Iterable[VmMoves]) -> Iterator[str]:
    """Yield what may happen to guests although no node is held up: the first in full."""
    found = [(f"{vm.namespace}/{vm.name}", vm.risk) for vm in vms if vm.risk is not None]
    for name, risk in found[:1]:
        yield f"  at risk: {name}: {risk.reason}"
        yield f"    to do: {risk.remedy}"
    if found[1:]:
        yield f"  the same may happen to {names(name for name, _ in found[1:])}"


_TIMES: Final = {0: "not at all", 1: "once", 2: "twice"}


def _health_checks(result: Rehearsal) -> Iterator[str]:
    """Yield the health checks that would, or may, act on a node that is only being updated."""
    for check in result.health_checks[:_MOST]:
        if check.acts is not False:
            certain = "would act" if check.acts else "may act"
            yield f"{check.title} {certain} on a node that is only being updated: {check.reason}"


def when(seconds: Range, start: datetime.datetime | None) -> str:
    """Return the wall-clock times of a range that begins at ``start``; without a start
    ``+5 min to +7 min``, or ``within 7 min``.
    """
    if start is not None:
        return seconds.clock(start)
    if seconds.high and not seconds.low:
        return f"within {hours(seconds.high)}"
    ends = (f"+{hours(bound)}" if bound else "now" for bound in (seconds.low, seconds.high))
    return " to ".join(dict.fromkeys(ends))


def hours(seconds: int) -> str:
    """Return ``111 h 6 min``, ``12 min`` or ``40 s``."""
    hours, rest = divmod(seconds, 3600)
    minutes = rest // 60
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min" if minutes else f"{seconds} s"
