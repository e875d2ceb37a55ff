"""Text for people, editors and terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from virt_admit.model.sanitize import cell, line, name
from virt_admit.reports.findings import grouping
from virt_admit.reports.findings.commands import command
from virt_admit.reports.findings.report import REPORTED, Report, ReportRow, lacks
from virt_admit.rule import Action

_MOST: Final = 15
"""Objects that are listed with what they report."""
Paint = Callable[[str, Action | None], str]
"""Colors a word by its action."""


def render(
    report: Report, paint: Paint = lambda word, _action: word, *, grouped: bool = False
) -> str:
    """Return ``file:line:column: action: path: message [rule]`` and a line for each fix.

    Args:
        report: the report.
        paint: colors a word by its action.
        grouped: begin with counts and print each problem once.
    """
    rows = _merge_unseen(report.rows())
    counted = grouped and rows
    out = [report.heading, *([f"{grouping.counted(report)}\n"] if counted else [])]
    for row in grouping.problems(rows) if grouped else rows:
        place = row.location
        where = f"{name(place.file)}:{place.line}:{place.column}" if place else grouping.called(row)
        out.append(f"{where}: {paint(row.word, row.action)}: {row.text} [{row.rule}]\n")
        if row.remedy:
            out.append(f"    fix: {row.remedy}\n")
        if todo := command(row):
            out.append(f"    to do: {line(todo)}\n")
        if also := grouping.also(row):
            out.append(f"    also: {also}\n")
        if later := grouping.later(row):
            out.append(f"    once it runs: {later}\n")
    if grouped and report.reported:
        shown = [f"  {line(str(each))}\n" for each in report.reported[:_MOST]]
        more = len(report.reported) - len(shown)
        out += [f"{REPORTED}:\n", *shown, *([f"  and {more} more, see -o json\n"] if more else [])]
    return "".join(out)


def _merge_unseen(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Replace the unseen rows of each object by one row that lists all missing data and the rules
    that need it.
    """
    out: list[ReportRow] = []
    unseen: dict[int, list[ReportRow]] = {}
    for row in rows:
        if not row.unseen:
            out.append(row)
        else:
            unseen.setdefault(id(row.result), []).append(row)
    for group in unseen.values():
        rules = ", ".join(dict.fromkeys(row.rule for row in group))
        every = {row.unseen for row in group}
        what = ", ".join(sorted(every))
        out.append(group[0]._replace(rule=rules, message=cell(lacks(every)), unseen=what))
    # within these it is sorted already
    return sorted(out, key=lambda row: (row.place[0], bool(row.unseen)))
