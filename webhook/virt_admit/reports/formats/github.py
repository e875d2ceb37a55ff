"""Workflow commands of GitHub Actions: annotations at the lines of a pull request.

GitHub shows ten of each level for a step; the summary of the job (``$GITHUB_STEP_SUMMARY``) has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.documents.reader import DocumentError
from virt_admit.reports.formats.places import relative
from virt_admit.reports.report import Report, ReportRow, called
from virt_admit.rule import Action

_COMMAND: Final = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "notice"}


def render(report: Report) -> str:
    """One command for each result, without what an exemption silences; one for all that could not be seen."""
    return "".join(f"{command}\n" for command in _commands(report))


def _commands(report: Report) -> Iterator[str]:
    for error in report.unread:
        yield _unread(error)
    for line in report.lines():
        if line.error or line.action:
            yield _command(_COMMAND[line.action] if line.action else "error", line)
    if report.blindness:
        yield f"::notice title=virt-admit::{_data(report.blindness)}"


def _command(level: str, line: ReportRow) -> str:
    place = line.location
    if not place:
        return f"::{level} title={_property(line.rule)}::{_data(f'{called(line.judged.obj)}: {line.advice}')}"
    where = f"file={_property(relative(place.file))},line={place.line},col={place.column},endLine={place.end_line}"
    return f"::{level} {where},title={_property(line.rule)}::{_data(line.advice)}"


def _unread(error: DocumentError) -> str:
    line = f",line={error.line},col={error.column}" if error.line else ""
    return f"::error file={_property(relative(error.file))}{line},title=unreadable::{_data(error.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
