"""Workflow commands of GitHub Actions: annotations at the lines of a pull request.

GitHub shows ten annotations of each level for a step. The job summary (``$GITHUB_STEP_SUMMARY``)
has all results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.documents.reader import DocumentError
from virt_admit.model.sanitize import line
from virt_admit.reports.findings.places import relative
from virt_admit.reports.findings.report import Report, ReportRow
from virt_admit.rule import Action

_COMMAND: Final = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "notice"}


def render(report: Report) -> str:
    """Return one command for each result that is not exempt, and one for all missing data."""
    return "".join(f"{command}\n" for command in _commands(report))


def _commands(report: Report) -> Iterator[str]:
    for error in report.unreadable:
        yield _unreadable(error)
    for row in report.rows():
        if row.error or row.action:
            yield _command(_COMMAND[row.action] if row.action else "error", row)
    if report.missing_data:
        yield f"::notice title=virt-admit::{_data(report.missing_data)}"


def _command(level: str, row: ReportRow) -> str:
    place = row.location
    if not place:
        text = _data(f"{row.result.called}: {row.advice}")
        return f"::{level} title={_property(row.rule)}::{text}"
    where = (
        f"file={_property(relative(place.file))},line={place.line},col={place.column},endLine="
        f"{place.end_line}"
    )
    return f"::{level} {where},title={_property(row.rule)}::{_data(row.advice)}"


def _unreadable(error: DocumentError) -> str:
    place = f",line={error.line},col={error.column}" if error.line else ""
    where = f"file={_property(relative(error.file))}{place}"
    return f"::error {where},title=unreadable::{_data(error.message)}"


def _data(text: str) -> str:
    return line(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
