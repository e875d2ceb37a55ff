"""The page of ``upgrade``: whether it completes, what stops it, a Gantt chart of the waves,
and the moves of VMs.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from virt_admit.forecasts.drain.targets import closed_targets
from virt_admit.forecasts.upgrade.outcomes import Wave
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal
from virt_admit.forecasts.upgrade.vm_interruptions import VmMoves
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import count, ended, names
from virt_admit.reports.drain.html import LEVEL_OF
from virt_admit.reports.drain.words import cost, in_words, yes
from virt_admit.reports.html import svg
from virt_admit.reports.html.causes import CauseItem, PageCause, joined, worst_first
from virt_admit.reports.html.causes import grouped as alike
from virt_admit.reports.html.levels import BAD, GOOD, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.page import Figure, Page, PageVerdict, Table, Tile
from virt_admit.reports.unavailable_data import may_lack_vms
from virt_admit.reports.upgrade.text import (
    NODES_UNKNOWN,
    by_cause,
    held,
    hosted,
    leaves_out,
    so_far,
    stops,
    when,
)

_MOST_LANES = 40


def page(
    result: Rehearsal,
    start: datetime.datetime | None = None,
    evidence: Iterable[tuple[str, str]] = (),
    subject: str = "",
) -> Page:
    """Return the page of a rehearsal. With a start the table of waves has wall-clock times."""
    nodes = sum(len(wave.nodes) for wave in result.waves)
    often = sum(vm.moves > 1 for vm in result.vms)
    tiles: tuple[Tile, ...] = (
        Tile(BAD, len(by_cause(result.stops)), "causes that stop it"),
        Tile(NOTICE, nodes, "nodes"),
        Tile(NOTICE, len(result.waves), "waves"),
    )
    # there is no zero where VMs could not be read
    if result.vms or not may_lack_vms(result.unseen):
        tiles += (
            Tile(GOOD, len(result.vms), "VMs"),
            Tile(SEVERE, often, "VMs that move more than once"),
        )
    return Page(
        title="Upgrade rehearsal",
        subject=subject,
        verdict=_verdict(result, start),
        tiles=tiles,
        causes_title="What stops it, and what happens to VMs",
        causes=worst_first(
            (
                *joined(_stops(result)),
                *_operators(result),
                *_refused(result),
                *_health_checks(result),
                *joined(_moves(result.vms)),
                *alike(_risks(result.vms)),
            )
        ),
        figures=(_gantt(result.waves),) if result.waves else (),
        tables=tuple(_tables(result, start)),
        notes=tuple((title, lines) for title, lines in _notes(result) if lines),
        evidence=(("updated by", str(result.driver)), *evidence),
    )


def _verdict(result: Rehearsal, start: datetime.datetime | None) -> PageVerdict:
    if result.nodes_complete is False:
        return PageVerdict(BAD, "No", f"The upgrade {stops(result.stops, result.operators)}.")
    if result.possible is False and result.nodes_complete is None:
        return PageVerdict(BAD, "Stuck", f"{held(result)}{NODES_UNKNOWN}")
    if result.possible is None or result.duration is None:
        unknown = "It cannot be determined whether the upgrade completes."
        return PageVerdict(UNKNOWN, "Unknown", unknown)
    until = f" It ends {when(result.duration, start)}." if start else ""
    ends = (result.duration.low, result.duration.high)
    within = " to ".join(dict.fromkeys(map(svg.clock, ends)))
    if result.possible is False:
        alone = "The nodes do not hold it up: their update alone would complete within"
        stuck = "No" if any(each.is_step for each in result.operators) else "Stuck"
        return PageVerdict(BAD, stuck, f"{held(result)}{alone} {within}.{until}")
    first = filter(None, (result.before_nodes, *result.paused))
    before = "".join(f" {ended(each)}" for each in first)
    if result.refused is not None:
        within += f", for {result.refused.within}, not for {result.refused.targets}"
    stands = hosted(result)
    within += f", for this cluster, not for {stands}" if stands else ""
    level, word = SEVERE if result.stopped or stands else GOOD, yes(result.stopped)
    sentence = f"The upgrade completes within {within}.{until}{before}{cost(result.stopped)}"
    return PageVerdict(level, word, sentence)


def _refused(result: Rehearsal) -> Iterator[PageCause]:
    if result.refused is not None:
        title = f"refuses {result.refused.targets}"
        for refusal in result.refused.by:
            yield PageCause(SEVERE, title, "", refusal.reason, refusal.remedy, ())


def _operators(result: Rehearsal) -> Iterator[PageCause]:
    for each in result.operators:
        apart = "is stuck, and the upgrade does not wait for it"
        title = apart if each.holds is False else "is stuck, which stops no node"
        title = "has to be done before" if each.is_step else title
        level = SEVERE if each.holds is False else BAD
        yield PageCause(level, title, "", each.reason, each.remedy, ())


def _stops(result: Rehearsal) -> Iterator[PageCause]:
    for stop in result.stops:
        item = CauseItem(stop.node or "a pool of nodes")
        word = "is left out" if leaves_out(stop) else "stops the upgrade"
        yield PageCause(BAD, word, "", stop.reason, stop.remedy, (item,))


def _health_checks(result: Rehearsal) -> Iterator[PageCause]:
    """Yield the health checks that would, or may, act on a node that is only being updated."""
    for check in result.health_checks:
        if check.acts is not False:
            level, title = (
                (SEVERE, "would act on a node") if check.acts else (UNKNOWN, "may act on a node")
            )
            what = f"{check.title}: {check.reason}"
            items = tuple(map(CauseItem, check.nodes))
            yield PageCause(level, title, "", what, "", items)


def _moves(vms: Sequence[VmMoves]) -> Iterator[PageCause]:
    for vm in vms:
        moves = f"{count(vm.moves, 'move')} each: migrations or restarts"
        text, item = moves if vm.moves else "They are not moved.", f"{vm.namespace}/{vm.name}"
        yield PageCause(
            LEVEL_OF[vm.outcome], in_words(vm.outcome), "", text, "", (CauseItem(item),)
        )


def _risks(vms: Sequence[VmMoves]) -> Iterator[tuple[PageCause, str]]:
    for vm in vms:
        if vm.risk is not None:
            item, risk = CauseItem(f"{vm.namespace}/{vm.name}"), vm.risk
            yield PageCause(SEVERE, "is at risk", "", risk.reason, risk.remedy, (item,)), vm.name


def _gantt(waves: Sequence[Wave]) -> Figure:
    size = -(-len(waves) // _MOST_LANES)
    lanes = [_lane(index, waves[index : index + size]) for index in range(0, len(waves), size)]
    end = max(wave.end.high for wave in waves)
    caption = "Time from the beginning. Each row has the shortest run above the longest."
    if size > 1:
        caption += f" A row is {size} waves of {len(waves)}."
    legend = (("good", "shortest run"), ("notice", "longest run"))
    return Figure("Waves", caption, svg.lanes(lanes, end), legend)


def _lane(index: int, waves: Sequence[Wave]) -> svg.Lane:
    nodes = [node for wave in waves for node in wave.nodes]
    label = f"wave {index + 1}" if len(waves) == 1 else f"waves {index + 1} to {index + len(waves)}"
    shortest = svg.Stretch("good", waves[0].start.low, max(wave.end.low for wave in waves))
    longest = svg.Stretch("notice", waves[0].start.high, max(wave.end.high for wave in waves))
    text = names(nodes, 18) if len(nodes) < 3 else count(len(nodes), "node")
    return svg.Lane(label, (shortest, longest), text)


def _tables(result: Rehearsal, start: datetime.datetime | None) -> Iterator[Table]:
    if result.waves:
        rows = tuple(
            (
                f"wave {number}",
                ", ".join(wave.nodes),
                f"after a wait: {'; '.join(wave.waits)}" if wave.waits else when(wave.start, start),
                when(wave.end, start),
            )
            for number, wave in enumerate(result.waves, 1)
        )
        yield Table("Order of the nodes", ("Wave", "Nodes", "Begins", "Ends"), rows)
    if result.progress is not None:
        flying = tuple(
            (each.node, str(each.phase), each.age, each.waits_for or "-")
            for each in result.progress.in_flight
        )
        if flying:
            yield Table("Nodes under way", ("Node", "Phase", "Since", "Waits for"), flying)
    if result.faster:
        columns = ("Setting", "Now", "Instead", "Saves up to")
        savings = tuple(
            (one.setting, one.from_, one.to, svg.clock(one.saves)) for one in result.faster
        )
        yield Table("Settings that save time", columns, savings)


def _notes(result: Rehearsal) -> Iterator[tuple[str, tuple[str, ...]]]:
    if result.progress is not None:
        yield "So far", (so_far(result.progress),)
    yield "VMs with old launchers", tuple(filter(None, (result.old_launchers,)))
    yield closed_targets.TITLE, tuple(closed_targets.lines(result.closed))
    yield "What objects around the stops report", tuple(map(str, result.reported))
    yield "The estimate rests on", result.conditions
    yield "Not available", result.unseen


def split(result: Rehearsal, owner_of: Callable[[VmMoves], str]) -> dict[str, Rehearsal]:
    """Return the rehearsal for each owner of VMs: all waves, but only the owner's VMs,
    and no objects of others.
    """
    vms = grouped(result.vms, owner_of)
    return {
        owner: replace(result, vms=tuple(own), reported=(), old_launchers="")
        for owner, own in vms.items()
    }
