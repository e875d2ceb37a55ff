"""Markdown for comments on pull requests and for the summaries of jobs."""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate
from typing import Final

from virt_admit.documents.reader import DocumentError
from virt_admit.engine.admission_review import line
from virt_admit.reports.formats.places import relative
from virt_admit.reports.formats.sarif import link
from virt_admit.reports.report import Report, ReportRow, called
from virt_admit.rule import Action

LONGEST: Final = 50_000
"""Characters; a comment on GitHub may have 65,536."""
_ACTIVE: Final = re.compile(r"[\\`*_\[\]<>|~&$]")
"""What Markdown could take for markup."""


def render(report: Report) -> str:
    """What could not be read and what was found, worst first, as a table; and what could not be seen."""
    lines = report.lines()
    found = sorted((each for each in lines if not each.unseen), key=_weight)
    counts = Counter(each.word for each in found)
    verdict = ", ".join(f"{number} {word}" for word, number in counts.items()) or "nothing found"
    sections = ["## virt-admit", f"**{verdict}**; {_plain(report.summary())}."]
    if found or report.unread:
        sections += _table([*map(_unread, report.unread), *map(_row, found)])
    if report.blindness:
        sections.append(f"{_plain(report.blindness)}.")
    return "\n\n".join(sections) + "\n"


def _weight(result: ReportRow) -> int:
    return -len(Action) if result.error else -(result.action or Action.OFF)


def _table(rows: list[str]) -> list[str]:
    """The table, with as many rows as fit, and how many do not."""
    shown = sum(length <= LONGEST for length in accumulate(len(row) + 1 for row in rows))
    more = len(rows) - shown
    table = "\n".join(("| | where | what | rule |", "|---|---|---|---|", *rows[:shown]))
    return [table, f"And {more} more."] if more else [table]


def _row(result: ReportRow) -> str:
    place = result.location
    where = [_code(f"{relative(place.file)}:{place.line}")] if place else []
    who = _plain(called(result.judged.obj))
    fix = [f"fix: {_plain(result.remedy)}"] if result.remedy else []
    rule = f"[{result.rule}]({link(result.rule)})"
    return _cells(result.word, "<br>".join((*where, who)), "<br>".join((_plain(result.text), *fix)), rule)


def _unread(error: DocumentError) -> str:
    where = f"{relative(error.file)}:{error.line}" if error.line else relative(error.file)
    return _cells("unreadable", _code(where), _plain(line(error.message)), "")


def _cells(word: str, *cells: str) -> str:
    return f"| **{word}** | {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that is nothing but text: no markup, no mention of anybody."""
    return _ACTIVE.sub(r"\\\g<0>", text).replace("@", "@\u200b")


def _code(text: str) -> str:
    """Text in backquotes. It stands in a table, where even there a bar must be escaped."""
    return "`" + re.sub(r"[`\x00-\x1f]", " ", text).replace("|", r"\|") + "`"
