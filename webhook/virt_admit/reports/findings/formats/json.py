"""JSON for scripts: everything that is known. Keys are only added, never removed."""

from __future__ import annotations

import json
from typing import Any

from virt_admit import __version__
from virt_admit.model.sanitize import escape_json
from virt_admit.reports.findings.commands import command
from virt_admit.reports.findings.report import ObjectResult, Report, ReportRow, identity
from virt_admit.rule import Action


def render(report: Report) -> str:
    """Return the report as one JSON object (docs/check.schema.json)."""
    rows = report.rows()
    denied = {id(row.result) for row in rows if row.action is Action.DENY}
    warned = {id(row.result) for row in rows if row.action is Action.WARN} - denied
    unseen = {id(row.result) for row in rows if row.unseen}
    data: dict[str, Any] = {
        "version": 1,
        "tool": {"name": "virt-admit", "version": __version__},
        "policy": report.policy,
        "summary": {
            "objects": len(report.results),
            "denied": len(denied),
            "warned": len(warned),
            "unseen": len(unseen),
            "errors": sum(len(result.response.errors) for result in report.results),
            "other_kinds": report.other_kinds,
        },
        "objects": [_object(result) for result in sorted(report.results, key=lambda result: result.order)],
        "results": [_row(row) for row in rows],
    }
    if report.clusters:
        data["clusters"] = [{"cluster": name, "error": error or None} for name, error in report.clusters.items()]
    return escape_json(json.dumps(data, indent=2, ensure_ascii=False)) + "\n"


def _object(result: ObjectResult) -> dict[str, Any]:
    document = result.document
    return {
        **_identity(result),
        "file": document.file if document else None,
        "line": document.line if document else None,
        "allowed": result.response.allowed,
        "patch": [step.as_json() for step in result.response.patch],
    }


def _row(row: ReportRow) -> dict[str, Any]:
    place = row.location
    location = place and {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return {
        "rule": row.rule,
        "action": str(row.action) if row.action is not None else None,
        "message": row.message,
        "path": str(row.path),
        "pointer": row.path.pointer,
        "object": _identity(row.result),
        "location": location,
        "fix": [step.as_json() for step in row.fix] or None,
        "unseen": row.unseen or None,
        "error": row.error or None,
        "exempted": row.exempted or None,
        "problem": None if row.problem is None else str(row.problem),
        "command": command(row) or None,
        **_cluster(row.result),
    }


def _identity(result: ObjectResult) -> dict[str, str]:
    return {**_cluster(result), **identity(result.obj)}


def _cluster(result: ObjectResult) -> dict[str, str]:
    return {"cluster": result.cluster} if result.cluster else {}
