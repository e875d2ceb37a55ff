"""For scripts: everything that is known, in a form that only ever grows."""

from __future__ import annotations

import json
from typing import Any

from virt_admit import __version__
from virt_admit.reports.report import ObjectResult, Report, ReportRow, identity
from virt_admit.rule import Action


def render(report: Report) -> str:
    """The report as one JSON object (docs/check.schema.json)."""
    lines = report.lines()
    denied = {id(line.judged) for line in lines if line.action is Action.DENY}
    warned = {id(line.judged) for line in lines if line.action is Action.WARN} - denied
    unseen = {id(line.judged) for line in lines if line.unseen}
    data = {
        "version": 1,
        "tool": {"name": "virt-admit", "version": __version__},
        "summary": {
            "objects": len(report.judged),
            "denied": len(denied),
            "warned": len(warned),
            "unseen": len(unseen),
            "errors": sum(len(one.response.errors) for one in report.judged),
            "other_kinds": report.other_kinds,
        },
        "objects": [_object(one) for one in sorted(report.judged, key=lambda one: one.order)],
        "results": [_result(line) for line in lines],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _object(judged: ObjectResult) -> dict[str, Any]:
    document = judged.document
    return {
        **identity(judged.obj),
        "file": document.file if document else None,
        "line": document.line if document else None,
        "allowed": judged.response.allowed,
        "patch": [step.as_json() for step in judged.response.patch],
    }


def _result(line: ReportRow) -> dict[str, Any]:
    place = line.location
    location = place and {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return {
        "rule": line.rule,
        "action": str(line.action) if line.action is not None else None,
        "message": line.message,
        "path": str(line.path),
        "pointer": line.path.pointer,
        "object": identity(line.judged.obj),
        "location": location,
        "fix": [step.as_json() for step in line.fix] or None,
        "unseen": line.unseen or None,
        "error": line.error or None,
        "exempted": line.exempted or None,
    }
