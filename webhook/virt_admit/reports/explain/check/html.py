"""The page of ``explain``: what a health check does,
with the time line from a lost node to its VMs running again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.outage.check_restarts import VmRestart
from virt_admit.forecasts.remediation.timeline import Event, Timeline
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.messages import count
from virt_admit.reports.html import svg
from virt_admit.reports.html.causes import CauseItem, PageCause, joined, shown, worst_first
from virt_admit.reports.html.levels import BAD, GOOD, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.owners import Owners
from virt_admit.reports.html.page import Figure, Page, PageVerdict, Table, Tile

_LEVEL: Final = {
    Event.SILENT: UNKNOWN,
    Event.NOTICED: NOTICE,
    Event.ACTS: NOTICE,
    Event.STEP: SEVERE,
    Event.CANCELLED: BAD,
    Event.FAILED: BAD,
    Event.DOWN: GOOD,
    Event.EXHAUSTED: BAD,
}
_FATE: Final = {True: (GOOD, "restarted"), False: (SEVERE, "stays off"), None: (UNKNOWN, "unknown")}
_TILE: Final = {True: "VMs restart", False: "VMs stay off", None: "VMs unknown"}
_WHAT: Final = {
    Event.SILENT: "node is silent",
    Event.NOTICED: "noticed",
    Event.ACTS: "check acts",
    Event.STEP: "remediation step",
    Event.CANCELLED: "cancelled",
    Event.FAILED: "does nothing",
    Event.DOWN: "confirmed down",
    Event.EXHAUSTED: "steps exhausted",
}
_LEGEND: Final = (
    (NOTICE, "noticed"),
    (SEVERE, "remediation"),
    (GOOD, "confirmed down"),
    (BAD, "cancelled, without effect or exhausted"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a page says of one health check."""

    name: str
    facts: tuple[tuple[str, str], ...]
    stages: tuple[tuple[str, str, str], ...]
    timeline: Timeline
    fates: tuple[VmRestart, ...]
    obstacles: tuple[str, ...]
    unseen: tuple[str, ...]


def page(
    checks: Sequence[Check], evidence: Iterable[tuple[str, str]] = (), subject: str = ""
) -> Page:
    """Return the page of health checks."""
    return Page(
        title="Health check" if len(checks) == 1 else "Health checks",
        subject=subject or ", ".join(check.name for check in checks),
        verdict=_verdict(checks),
        tiles=_tiles(checks),
        causes_title="VMs of a lost node, and what keeps the check from acting",
        causes=worst_first(cause for check in checks for cause in _causes(check)),
        figures=tuple(_figure(check) for check in checks if check.timeline.moments),
        tables=tuple(table for check in checks for table in _tables(check)),
        notes=tuple(
            (f"Not available: {check.name}", check.unseen) for check in checks if check.unseen
        ),
        evidence=tuple(evidence),
    )


def _verdict(checks: Sequence[Check]) -> PageVerdict:
    never = [check for check in checks if check.timeline.never]
    if never:
        said = (f"{check.name}: VMs never restart: {check.timeline.never}." for check in never)
        return PageVerdict(BAD, "Never", " ".join(said))
    blocked = [check for check in checks if check.obstacles]
    if blocked:
        text = " ".join(
            f"{check.name} does nothing now: {'; '.join(check.obstacles)}." for check in blocked
        )
        return PageVerdict(SEVERE, "Not now", text)
    known = [check for check in checks if check.timeline.restart is not None]
    if len(known) < len(checks) or any(check.unseen for check in checks):
        text = f"{_restarts(known)} Some data could not be read: see below."
        return PageVerdict(UNKNOWN, "Not certain", text.strip())
    fates = [fate for check in checks for fate in check.fates]
    off = sum(fate.comes is False for fate in fates)
    waiting = sum(bool(fate.nowhere) for fate in fates)
    if off or waiting:
        costs = [f"{count(off, 'VM')} would stay off"] * bool(off)
        costs += [f"{count(waiting, 'VM')} would find no node"] * bool(waiting)
        text = f"{_restarts(known)} {' and '.join(costs)}."
        return PageVerdict(SEVERE, "Not all VMs restart", text)
    unknown = sum(fate.comes is None for fate in fates)
    if unknown:
        text = f"{_restarts(known)} Of {count(unknown, 'VM')} it cannot be determined."
        return PageVerdict(UNKNOWN, "Not certain", text)
    return PageVerdict(GOOD, "VMs restart", _restarts(known))


def _restarts(checks: Sequence[Check]) -> str:
    return " ".join(
        f"{check.name}: VMs restart after {check.timeline.restart.at}."
        for check in checks
        if check.timeline.restart
    )


def _tiles(checks: Sequence[Check]) -> tuple[Tile, ...]:
    never = sum(len(check.fates) for check in checks if check.timeline.never)
    fates = [fate for check in checks if not check.timeline.never for fate in check.fates]
    waiting = sum(bool(fate.nowhere) for fate in fates)
    found = [fate for fate in fates if not fate.nowhere]
    tiles = [
        Tile(level, sum(fate.comes is comes for fate in found), _TILE[comes])
        for comes, (level, _) in _FATE.items()
    ]
    waits = Tile(SEVERE, waiting, "VMs find no node")
    return (Tile(BAD, never, "VMs never restart"), *tiles[:1], waits, *tiles[1:])


def _causes(check: Check) -> Iterator[PageCause]:
    for obstacle in check.obstacles:
        yield PageCause(BAD, "does nothing", check.name, obstacle)
    yield from joined(_fates(check))


def _fates(check: Check) -> Iterator[PageCause]:
    for fate in check.fates:
        place = fate.vmi.at("status", "nodeName").text or ""
        level, word = (SEVERE, "waits for a node") if fate.nowhere else _FATE[fate.comes]
        never = check.timeline.never
        level, word, why = (BAD, "never restarts", never) if never else (level, word, fate.why)
        yield PageCause(level, word, "", why, "", (CauseItem(shown(_name, fate), place),))


def _name(fate: VmRestart) -> str:
    return fate.vmi.full_name


def _figure(check: Check) -> Figure:
    moments = check.timeline.moments
    bounds = [bound // SECOND for moment in moments for bound in moment.at if bound is not None]
    end = max((*bounds, 1)) * 23 // 20 + 1  # room for a bar without a known end
    lanes = [
        svg.Lane(
            str(moment.at),
            (
                svg.Stretch(
                    _LEVEL[moment.event],
                    moment.at.least // SECOND,
                    None if moment.at.most is None else moment.at.most // SECOND,
                ),
            ),
            _WHAT[moment.event],
        )
        for moment in moments
    ]
    caption = (
        "Time after the node stops reporting. A long bar is the range in which the event happens."
    )
    return Figure(f"Time line: {check.name}", caption, svg.lanes(lanes, end), _LEGEND)


def _tables(check: Check) -> list[Table]:
    tables = [Table(f"Facts: {check.name}", ("Fact", "Value"), check.facts)]
    if check.timeline.moments:
        moments = tuple((str(moment.at), moment.what) for moment in check.timeline.moments)
        title = "When a node stops reporting, and the limit lets the check act"
        tables.append(Table(title, ("After", "What happens"), moments))
    if check.stages:
        columns = ("Remediator", "Takes", "Next step after")
        tables.append(Table("Remediation", columns, check.stages))
    return tables


def split(checks: Sequence[Check], owners: Owners) -> dict[str, list[Check]]:
    """Return the health checks for each owner of VMs: everything, but only the owner's VMs."""
    named = sorted({owners.of(fate.vmi) for check in checks for fate in check.fates})
    return {
        owner: [
            replace(
                check, fates=tuple(fate for fate in check.fates if owners.of(fate.vmi) == owner)
            )
            for check in checks
        ]
        for owner in named
    }
