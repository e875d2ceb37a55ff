"""The page of ``check`` and ``scan``: each cause once with its objects,
findings by rule and by namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.messages import count
from virt_admit.model.sanitize import line
from virt_admit.reports.findings import grouping
from virt_admit.reports.findings.commands import command
from virt_admit.reports.findings.places import relative
from virt_admit.reports.findings.report import (
    REPORTED,
    Drains,
    ObjectResult,
    Report,
    ReportRow,
    rows_of,
)
from virt_admit.reports.html import svg
from virt_admit.reports.html.causes import CauseItem, PageCause, grouped, shown, worst_first
from virt_admit.reports.html.levels import BAD, GOOD, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.owners import Owners
from virt_admit.reports.html.page import Cell, Figure, Page, PageVerdict, Table, Tile

LEVEL_OF: Final[Mapping[str, str]] = {
    "error": BAD,
    "unreadable": BAD,
    "deny": BAD,
    "warn": SEVERE,
    "unseen": UNKNOWN,
    "audit": NOTICE,
    "fix": GOOD,
    "off": UNKNOWN,
}
"""The color of each class of findings."""
_LEGEND: Final = ((BAD, "deny, or an error"), (SEVERE, "warn"), (NOTICE, "audit"))
_CHARTED: Final = ("error", "deny", "warn", "audit")
_MOST_BARS: Final = 25
_LONGEST_LIST: Final = 4
"""Messages that a row about several places of an object repeats."""


def page(report: Report, subject: str = "") -> Page:
    """Return the page of a report. ``subject`` names a part of it, such as a namespace."""
    rows, broken = _rows(report.results)
    numbers = grouping.counts(report) if not broken else Counter[str]()
    tiles = (
        Tile(BAD, numbers["denied"], "denied"),
        Tile(SEVERE, numbers["warned"], "with warnings"),
        Tile(NOTICE, numbers["audited"], "only audited"),
        Tile(GOOD, len(report.results), "objects judged"),
    )
    return Page(
        title="Findings",
        subject=subject,
        verdict=_verdict(report, numbers, incomplete=bool(broken)),
        tiles=tiles,
        leading=(_matrix(report),) if report.clusters else (),
        causes_title="What was found",
        causes=worst_first((*_unreadable(report), *broken, *_causes(rows))),
        figures=tuple(_figures(rows)),
        notes=tuple((title, lines) for title, lines in _notes(report) if lines),
        evidence=(
            ("policy", report.policy or "default"),
            *report.evidence,
            ("scope", report.summary()),
        ),
    )


def _notes(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield REPORTED, tuple(map(str, report.reported))
    yield "Not available", (report.missing_data,) if report.missing_data else ()


def _rows(results: Sequence[ObjectResult]) -> tuple[list[ReportRow], list[PageCause]]:
    """Return the rows of all objects, and a cause for each object whose rows cannot be made."""
    rows: list[ReportRow] = []
    broken: list[PageCause] = []
    for result in sorted(results, key=lambda one: shown(lambda each: each.called, one)):
        try:
            own = sorted(rows_of(result), key=lambda row: row.order)
            for row in own:
                _ = row.text, row.remedy
            rows += own
        except Exception as error:
            name = shown(lambda one: one.called, result)
            why = f"The object cannot be shown ({type(error).__name__})."
            broken.append(PageCause(BAD, "error", "", why, "", (CauseItem(name),)))
    return grouping.by_problem(rows), broken


def _verdict(report: Report, numbers: Mapping[str, int], *, incomplete: bool) -> PageVerdict:
    denied, warned = numbers["denied"], numbers["warned"]
    what = (
        f"{count(denied, 'object')} would be denied, {count(warned, 'object')} would get warnings."
    )
    drains, is_blocked, is_unknown = _drains(report)
    what = f"{drains}{what}"
    if report.crashed or report.unreadable or incomplete:
        return PageVerdict(BAD, "Incomplete", f"Some input could not be judged. {what}")
    if denied:
        return PageVerdict(BAD, "Denied", what)
    if is_blocked:
        return PageVerdict(BAD, "Drains are blocked", what)
    if warned:
        return PageVerdict(SEVERE, "Warnings", what)
    if report.missing_data:
        return PageVerdict(
            UNKNOWN, "Nothing found, with gaps", f"{drains}Some data was not available: see below."
        )
    if is_unknown:
        return PageVerdict(UNKNOWN, "Unknown", what)
    return PageVerdict(GOOD, "Clean", f"{drains}No object would be denied or warned about.")


def _drains(report: Report) -> tuple[str, bool, bool]:
    """Return what drains would meet as a sentence, whether any is blocked,
    and whether any is not determined.
    """
    every = report.drains.values()
    numbers = zip((0, 0, 0), *(one[:3] for one in every), strict=True)
    blocked, unknown, nodes = map(sum, numbers)
    vms = sum(len(one.vms) for one in every)
    if blocked:
        text = f"{blocked} of {count(nodes, 'node')} cannot be drained (virt-admit drain --all). "
    elif vms:
        whose = "its node" if vms == 1 else "their nodes"
        text = f"{count(vms, 'VM')} would block the drain of {whose}. "
    elif unknown:
        text = (
            f"Whether {count(unknown, 'node')} can be drained cannot be determined (virt-admit "
            "drain --all). "
        )
    else:
        text = f"{count(nodes, 'node')} can be drained. " if nodes else ""
    return text, bool(blocked or vms), bool(unknown)


def _matrix(report: Report) -> Table:
    """Return the verdict and the counts of each of several clusters."""
    rows: list[tuple[Cell, ...]] = []
    for name, error in report.clusters.items():
        own = report._replace(
            results=tuple(one for one in report.results if one.cluster == name),
            unreadable=(),
            drains={key: value for key, value in report.drains.items() if key == name},
        )
        numbers = grouping.counts(own)
        verdict = _verdict(own, numbers, incomplete=False).word
        counted = (len(own.results), numbers["denied"], numbers["warned"], numbers["audited"])
        found = (f"cannot be read: {error}", *("-",) * 4) if error else (verdict, *counted)
        rows.append((name, *found))
    columns = ("Cluster", "Verdict", "Objects", "Denied", "Warned", "Audited")
    return Table("Clusters", columns, tuple(rows))


def _unreadable(report: Report) -> Iterator[PageCause]:
    for error in report.unreadable:
        place = error.file if report.clusters else relative(error.file)
        place += f":{error.line}" if error.line else ""
        yield PageCause(BAD, "unreadable", "", error.message, "", (CauseItem(place),))


def _causes(rows: Sequence[ReportRow]) -> Iterator[PageCause]:
    """Yield one cause for equal texts of a rule.

    A row of several places repeats some of their texts.
    """
    of_object: dict[tuple[int, str, str], list[ReportRow]] = {}
    for row in rows:
        of_object.setdefault((id(row.result), row.word, row.rule), []).append(row)
    return grouped(_cause(word, rule, own) for (_, word, rule), own in of_object.items())


def _cause(word: str, rule: str, rows: Sequence[ReportRow]) -> tuple[PageCause, str]:
    texts = list(dict.fromkeys(row.text for row in rows))
    more = f" … and {len(texts) - _LONGEST_LIST} more" if len(texts) > _LONGEST_LIST else ""
    text = " · ".join(texts[:_LONGEST_LIST]) + more
    remedy = "; ".join(dict.fromkeys(row.remedy for row in rows if row.remedy))
    level = LEVEL_OF.get(word, UNKNOWN)
    return PageCause(level, word, rule, text, remedy, (_item(rows[0]),)), rows[0].result.obj.name


def _item(row: ReportRow) -> CauseItem:
    place = row.location
    shown_by = f"also {grouping.also(row)}" if row.others else ""
    where = f"{relative(place.file)}:{place.line}" if place else shown_by
    return CauseItem(row.result.called, where, line(command(row)))


def _figures(rows: Sequence[ReportRow]) -> Iterator[Figure]:
    charted = [row for row in rows if row.word in _CHARTED]
    if not charted:
        return
    rules = {(row.rule, _color(row), id(row.result)) for row in charted}
    caption = "Objects with findings of each rule"
    yield _chart("Findings by rule", caption, [(rule, level) for rule, level, _ in rules])
    namespaces = {
        (row.result.obj.namespace or "(cluster-scoped)", _color(row), id(row.result), row.rule)
        for row in charted
    }
    caption = "Findings in each namespace, one for each rule and object"
    yield _chart("Findings by namespace", caption, [key[:2] for key in namespaces])


def _color(row: ReportRow) -> str:
    return LEVEL_OF[row.word]


def _chart(title: str, caption: str, keys: Sequence[tuple[str, str]]) -> Figure:
    numbers = Counter(keys)
    totals = Counter(key for key, _ in keys)
    ordered = sorted(totals, key=lambda key: (-totals[key], key))
    bars = [
        svg.Bar(
            key,
            tuple(svg.BarPart(level, numbers[key, level]) for level, _ in _LEGEND),
            f"{totals[key]:,}",
        )
        for key in ordered[:_MOST_BARS]
    ]
    most = f" The {_MOST_BARS} with most of {len(ordered)} are shown."
    more = most if len(ordered) > _MOST_BARS else ""
    return Figure(title, f"{caption}.{more}", svg.bars(bars), _LEGEND)


def split(report: Report, owners: Owners) -> dict[str, Report]:
    """Return a report for each owner of objects."""
    results: dict[str, list[ObjectResult]] = {}
    for result in report.results:
        results.setdefault(owners.of(result.obj), []).append(result)
    blocking = [vmi for one in report.drains.values() for vmi in one.vms]
    for vmi in blocking:
        results.setdefault(owners.of(vmi), [])
    return {
        owner: report._replace(
            results=tuple(own),
            unreadable=(),
            other_kinds=0,
            skipped=0,
            templates=0,
            files=0,
            reported=(),
            drains={owner: Drains(vms=tuple(vmi for vmi in blocking if owners.of(vmi) == owner))}
            if blocking
            else {},
        )
        for owner, own in results.items()
    }
