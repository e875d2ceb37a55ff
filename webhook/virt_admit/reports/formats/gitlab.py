"""Code Quality of GitLab: findings in the merge request, and whether they are new."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from virt_admit.documents.reader import DocumentError
from virt_admit.reports.formats.places import relative
from virt_admit.reports.formats.sarif import fingerprint
from virt_admit.reports.report import Report, ReportRow, called
from virt_admit.rule import Action

_SEVERITY: Final = {Action.DENY: "major", Action.WARN: "minor", Action.AUDIT: "info"}


def render(report: Report) -> str:
    """The report as a list of issues, without what an exemption silences and without what could not be seen."""
    return json.dumps([*_issues(report)], indent=2, ensure_ascii=False) + "\n"


def _issues(report: Report) -> Iterator[dict[str, Any]]:
    for error in report.unread:
        yield _unread(error)
    seen: Counter[str] = Counter()
    for line in report.lines():
        if line.error or line.action:
            file = relative(line.location.file) if line.location else called(line.judged.obj)
            same = f"{fingerprint(line)} {file}"
            seen[same] += 1
            yield _issue(line, file, f"{same} {seen[same]}")


def _issue(line: ReportRow, file: str, identity: str) -> dict[str, Any]:
    """``identity``: what tells it from all others; GitLab drops issues with the same fingerprint."""
    return {
        "description": line.advice,
        "check_name": line.rule,
        "fingerprint": _digest(identity),
        "severity": _SEVERITY[line.action] if line.action else "critical",
        "location": {"path": file, "lines": {"begin": line.location.line if line.location else 1}},
    }


def _unread(error: DocumentError) -> dict[str, Any]:
    file = relative(error.file)
    return {
        "description": error.message,
        "check_name": "unreadable",
        "fingerprint": _digest(f"unreadable {file} {error.line}"),
        "severity": "critical",
        "location": {"path": file, "lines": {"begin": error.line or 1}},
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
