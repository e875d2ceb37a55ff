"""A rehearsal as text that fits a screen."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal, Stop, Wave
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.messages import count, names
from virt_admit.model.sanitize import indented
from virt_admit.reports.unavailable_data import not_available

_MOST: Final = 8
"""Waves, stops and VMs that are listed; the rest is counted."""


def text(result: Rehearsal, start: datetime.datetime | None = None) -> str:
    """Return the verdict first, then what stops it, the waves, the VMs and the settings that would save time."""
    lines = [_verdict(result, start), ""]
    lines += _stops(result.stops)
    lines += _waves(result.waves, start)
    lines += _vms(result)
    lines += _health_checks(result)
    lines += [
        f"{saving.setting} {saving.before} → {saving.after} saves up to {_hours(saving.seconds)}"
        for saving in result.faster
    ]
    if result.rests_on:
        lines += ["", f"The estimate rests on: {'; '.join(result.rests_on)}."]
    if result.unseen:
        lines += ["", *not_available(result.unseen)]
    return "\n".join(map(indented, lines))


def _verdict(result: Rehearsal, start: datetime.datetime | None) -> str:
    nodes = sum(len(wave.nodes) for wave in result.waves)
    if result.possible is False:
        return f"No: the upgrade stops ({count(len(result.stops), 'cause')})."
    if result.possible is None or result.duration is None:
        return "Unknown: it cannot be determined whether the upgrade completes. See below."
    until = f", until {_clock(start, result.duration)}" if start is not None else ""
    return f"Yes: {count(nodes, 'node')} {_BY[result.driver]}in {span(result.duration)}{until}."


_BY: Final = {
    Driver.MACHINE_CONFIG: "in the order of the MachineConfigPools ",
    Driver.CLUSTER_API: "in the order of the MachineDeployments ",
    Driver.PLAIN: "",
}


def span(duration: Range) -> str:
    """Return a duration such as ``2 h to 3 h``, or ``2 h`` if both ends are equal."""
    return " to ".join(dict.fromkeys((_hours(duration.low), _hours(duration.high))))


def _stops(stops: Sequence[Stop]) -> Iterator[str]:
    for stop in stops[:_MOST]:
        yield f"stops at {stop.node}: {stop.reason}" if stop.node else f"stops: {stop.reason}"
        yield f"  to do: {stop.remedy}"
    if len(stops) > _MOST:
        yield f"and {len(stops) - _MOST} more stops"
    if stops:
        yield ""


def _waves(waves: Sequence[Wave], start: datetime.datetime | None) -> Iterator[str]:
    shown = waves if len(waves) <= _MOST else [*waves[: _MOST - 1], waves[-1]]
    for number, wave in enumerate(shown):
        if number == _MOST - 1 and len(waves) > _MOST:
            yield f"  … {len(waves) - _MOST} more waves …"
        when = f"{_at(start, wave.start)} to {_at(start, wave.end)}"
        yield f"  {when}: {names(wave.nodes, 60)}"
    if waves:
        yield ""


def _vms(result: Rehearsal) -> Iterator[str]:
    if not result.vms:
        return
    moves = Counter(vm.moves for vm in result.vms)
    yield f"{count(len(result.vms), 'VM')}: " + ", ".join(
        f"{number} with {count(times, 'move')}" for times, number in sorted(moves.items())
    )
    often = [f"{vm.namespace}/{vm.name} ({vm.moves})" for vm in result.vms if vm.moves > 1]
    if often:
        yield f"  more than once: {names(often)}"
    off = [f"{vm.namespace}/{vm.name}" for vm in result.vms if vm.outcome is VmOutcome.STOPS]
    if off:
        yield f"  shut down, and stay off: {names(off)}"


def _health_checks(result: Rehearsal) -> Iterator[str]:
    """Yield the health checks that would, or may, act on a node that is only being updated."""
    for check in result.health_checks[:_MOST]:
        if check.acts is not False:
            certain = "would act" if check.acts else "may act"
            yield f"{check.title} {certain} on a node that is only being updated: {check.reason}"


def _at(start: datetime.datetime | None, seconds: Range) -> str:
    if start is not None:
        return _clock(start, seconds)
    return (
        f"+{_hours(seconds.low)}" if seconds.low == seconds.high else f"+{_hours(seconds.low)}..{_hours(seconds.high)}"
    )


def _clock(start: datetime.datetime, seconds: Range) -> str:
    return "..".join(seconds.clock(start))


def _hours(seconds: int) -> str:
    """Return ``111 h 6 min``, ``12 min`` or ``40 s``."""
    hours, rest = divmod(seconds, 3600)
    minutes = rest // 60
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min" if minutes else f"{seconds} s"
