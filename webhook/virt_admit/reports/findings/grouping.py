"""Findings grouped by cause: a rule that finds the same in several places of an object is one row."""

from __future__ import annotations

from collections.abc import Iterable

from virt_admit.model.messages import count, names
from virt_admit.reports.findings.report import Report, ReportRow
from virt_admit.rule import Action


def merge(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return one row for each object and cause: class, rule and path without indices. The row names the other places."""
    groups: dict[tuple[object, ...], list[ReportRow]] = {}
    for row in rows:
        groups.setdefault((id(row.result), row.word, row.rule, row.path.without_indices), []).append(row)
    return [_merged(group) for group in groups.values()]


def _merged(group: list[ReportRow]) -> ReportRow:
    first, *others = group
    if not others:
        return first
    places = names(dict.fromkeys(str(row.path) for row in others if str(row.path) != str(first.path)))
    more = f" (also {places})" if places else ""
    fixes = tuple(dict.fromkeys(step for row in group for step in row.fix))
    return first._replace(message=f"{first.message}{more}", fix=fixes)


def counts(report: Report) -> dict[str, int]:
    """Return the numbers of objects by the strictest class: denied, warned, audited."""
    strictest: dict[int, Action] = {}
    for row in report.rows():
        if row.action is not None:
            strictest[id(row.result)] = max(row.action, strictest.get(id(row.result), Action.OFF))
    found = list(strictest.values())
    return {
        "denied": found.count(Action.DENY),
        "warned": found.count(Action.WARN),
        "audited": found.count(Action.AUDIT),
    }


def counted(report: Report) -> str:
    """Return the counts as one line: ``1 denied, 2 warned, 0 audited of 12 objects``."""
    return (
        ", ".join(f"{number} {word}" for word, number in counts(report).items())
        + f" of {count(len(report.results), 'object')}"
    )
