"""Markdown for comments on pull requests and for job summaries."""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate
from typing import Final

from virt_admit.documents.reader import DocumentError
from virt_admit.model.sanitize import line, name
from virt_admit.reports.findings import grouping
from virt_admit.reports.findings.places import relative, rule_page
from virt_admit.reports.findings.report import DUPLICATE_KEY, Report, ReportRow
from virt_admit.rule import Action

LONGEST: Final = 50_000
"""Characters; a comment on GitHub may have 65,536."""
_ACTIVE: Final = re.compile(r"[\\`*_\[\]<>|~&$]")
"""The characters that Markdown could read as markup."""


def render(report: Report, *, grouped: bool = True) -> str:
    """Return a table of unreadable files and findings, the strictest first,
    and a sentence about missing data.

    Args:
        report: the report.
        grouped: one row for each problem.
    """
    rows = grouping.problems(report.rows()) if grouped else report.rows()
    found = sorted((row for row in rows if not row.unseen), key=_weight)
    counts = Counter(row.word for row in found)
    verdict = ", ".join(f"{number} {word}" for word, number in counts.items()) or "nothing found"
    sections = ["## virt-admit", f"**{verdict}**; {_plain(report.summary())}."]
    if found or report.unreadable:
        sections += _table([*map(_unreadable, report.unreadable), *map(_row, found)])
    if report.missing_data:
        sections.append(f"{_plain(report.missing_data)}.")
    return "\n\n".join(sections) + "\n"


def _weight(row: ReportRow) -> int:
    return -len(Action) if row.error else -(row.action or Action.OFF)


def _table(rows: list[str]) -> list[str]:
    """Return the table with as many rows as fit, and the number of the others."""
    shown = sum(length <= LONGEST for length in accumulate(len(row) + 1 for row in rows))
    more = len(rows) - shown
    table = "\n".join(("| | where | what | rule |", "|---|---|---|---|", *rows[:shown]))
    return [table, f"And {more} more."] if more else [table]


def _row(row: ReportRow) -> str:
    place = row.location
    where = [_code(f"{name(relative(place.file))}:{place.line}")] if place else []
    who = _plain(grouping.called(row))
    fix = [f"fix: {_plain(row.remedy)}"] if row.remedy else []
    also = [f"also: {_plain(more)}"] if (more := grouping.also(row)) else []
    later = [f"once it runs: {_plain(more)}"] if (more := grouping.later(row)) else []
    what = "<br>".join((_plain(row.text), *fix, *also, *later))
    return _cells(row.word, "<br>".join((*where, who)), what, _rule(row.rule))


def _rule(rule: str) -> str:
    """Return a link to the page of a rule, or the command that shows it."""
    page = rule_page(rule)
    if page:
        return f"[{rule}]({page})"
    return _code(rule if rule == DUPLICATE_KEY else f"virt-admit rules {rule}")


def _unreadable(error: DocumentError) -> str:
    file = name(relative(error.file))
    where = f"{file}:{error.line}" if error.line else file
    return _cells("unreadable", _code(where), _plain(line(error.message)), "")


def _cells(word: str, *cells: str) -> str:
    return f"| **{word}** | {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Escape markup and mentions."""
    return _ACTIVE.sub(r"\\\g<0>", text).replace("@", "@\u200b")


def _code(text: str) -> str:
    """Return text in backquotes. In a table a bar has to be escaped even there."""
    return "`" + re.sub(r"[`\x00-\x1f]", " ", text).replace("|", r"\|") + "`"
