"""GitLab Code Quality: findings in the merge request, and whether they are new."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from virt_admit.documents.reader import DocumentError
from virt_admit.model.sanitize import line
from virt_admit.reports.findings.places import relative
from virt_admit.reports.findings.report import Report, ReportRow
from virt_admit.reports.values import json_text
from virt_admit.rule import Action

_SEVERITY: Final = {Action.DENY: "major", Action.WARN: "minor", Action.AUDIT: "info"}


def render(report: Report) -> str:
    """Return the report as a list of issues, without exempt findings and missing data."""
    return json_text([*_issues(report)]) + "\n"


def _issues(report: Report) -> Iterator[dict[str, Any]]:
    for error in report.unreadable:
        yield _unreadable(error)
    used: Counter[str] = Counter()
    for row in report.rows():
        if row.error or row.action:
            file = relative(row.location.file) if row.location else row.result.called
            same = f"{row.fingerprint} {file}"
            used[same] += 1
            yield _issue(row, file, f"{same} {used[same]}")


def _issue(row: ReportRow, file: str, identity: str) -> dict[str, Any]:
    """Return an issue.

    ``identity`` has to be unique: GitLab drops issues with the same fingerprint.
    """
    return {
        "description": row.advice,
        "check_name": row.rule,
        "fingerprint": _digest(identity),
        "severity": _SEVERITY[row.action] if row.action else "critical",
        "location": {"path": file, "lines": {"begin": row.location.line if row.location else 1}},
    }


def _unreadable(error: DocumentError) -> dict[str, Any]:
    file = relative(error.file)
    return {
        "description": line(error.message),
        "check_name": "unreadable",
        "fingerprint": _digest(f"unreadable {file} {error.line}"),
        "severity": "critical",
        "location": {"path": file, "lines": {"begin": error.line or 1}},
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
