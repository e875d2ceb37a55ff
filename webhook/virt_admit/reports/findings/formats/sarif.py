"""SARIF 2.1.0, for code scanning: GitHub, Azure DevOps, editors.

Exempt findings are left out, because GitHub opens alerts even for suppressed results. Missing data,
unreadable files and crashed rules are notifications: they are not problems of the manifests.
"""

from __future__ import annotations

import inspect
from typing import Any, Final
from urllib.parse import quote

from virt_admit import __version__
from virt_admit.documents.reader import DocumentError, Location
from virt_admit.model.sanitize import line
from virt_admit.reports.findings.places import docs_url, relative, rule_page
from virt_admit.reports.findings.report import DUPLICATE_KEY, Report, ReportRow
from virt_admit.reports.values import json_text
from virt_admit.rule import Action, Rule
from virt_admit.rules import load_rules

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
ROOT: Final = "%SRCROOT%"
LEVEL: Final = {
    Action.DENY: "error",
    Action.WARN: "warning",
    Action.AUDIT: "note",
    Action.OFF: "none",
}


def render(report: Report) -> str:
    """Return the report as one run."""
    rules = [*map(_rule, load_rules()), _duplicate_key()]
    index = {rule["id"]: position for position, rule in enumerate(rules)}
    rows, folder = report.rows(), docs_url()
    run = {
        "tool": {
            "driver": {
                "name": "virt-admit",
                "version": __version__,
                **({"informationUri": folder} if folder else {}),
                "rules": rules,
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            ROOT: {"description": {"text": "The directory in which virt-admit was run."}}
        },
        "invocations": [
            {
                "executionSuccessful": not (report.unreadable or report.crashed),
                "toolExecutionNotifications": [
                    *map(_unreadable, report.unreadable),
                    *(_notification(row, index) for row in rows if row.action is None),
                ],
            }
        ],
        "results": [_result(row, index) for row in rows if row.action],
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return _described(rule.id, inspect.cleandoc(rule.doc or ""), rule.action)


def _described(rule: str, page: str, action: Action) -> dict[str, Any]:
    """Return the description of a rule. ``page``: its title, reasons and fix, in Markdown."""
    plain, url = page.replace("**", "").replace("``", "'"), rule_page(rule)
    return {
        "id": rule,
        "shortDescription": {"text": plain.partition("\n")[0]},
        "fullDescription": {"text": " ".join(plain.partition("\n\nFix.")[0].split())},
        **({"helpUri": url} if url else {}),
        "help": {"text": plain, "markdown": page},
        "defaultConfiguration": {"level": LEVEL[action], **({} if action else {"enabled": False})},
    }


def _duplicate_key() -> dict[str, Any]:
    page = (
        "A map contains a key twice.\n\n**Why.** kubectl uses the last value. The first one has no "
        "effect.\n\n**Fix.** Remove one of the two."
    )
    return _described(DUPLICATE_KEY, page, Action.WARN)


def _result(row: ReportRow, index: dict[str, int]) -> dict[str, Any]:
    return {
        "ruleId": row.rule,
        "ruleIndex": index[row.rule],
        "level": LEVEL[row.action or Action.OFF],
        "message": {"text": row.advice},
        "locations": [_location(row)],
        "partialFingerprints": {"virtAdmit/v1": row.fingerprint},
        **_fixes(row),
    }


def _location(row: ReportRow) -> dict[str, Any]:
    obj = row.result.obj
    location: dict[str, Any] = {
        "logicalLocations": [
            {"name": line(obj.name), "fullyQualifiedName": row.result.called, "kind": "resource"}
        ]
    }
    return location | ({"physicalLocation": _place(row.location)} if row.location else {})


def _place(place: Location) -> dict[str, Any]:
    return {"artifactLocation": _artifact(place.file), "region": _region(place)}


def _region(place: Location) -> dict[str, int]:
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }


def _artifact(file: str) -> dict[str, str]:
    path = relative(file)
    uri = quote(path, errors="surrogateescape")
    return {"uri": f"file://{uri}"} if path.startswith("/") else {"uri": uri, "uriBaseId": ROOT}


def _fixes(row: ReportRow) -> dict[str, Any]:
    edit = row.text_edit
    if edit is None:
        return {}
    replacement = {"deletedRegion": _region(edit.location), "insertedContent": {"text": edit.text}}
    file = {"artifactLocation": _artifact(edit.location.file), "replacements": [replacement]}
    return {"fixes": [{"description": {"text": edit.description}, "artifactChanges": [file]}]}


def _notification(row: ReportRow, index: dict[str, int]) -> dict[str, Any]:
    return {
        "level": "error" if row.error else "note",
        "message": {"text": row.text},
        "associatedRule": {"id": row.rule, "index": index[row.rule]},
        "locations": [_location(row)],
    }


def _unreadable(error: DocumentError) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(error.file)}
    if error.line:
        place["region"] = {"startLine": error.line, "startColumn": error.column}
    return {
        "level": "error",
        "message": {"text": line(error.message)},
        "locations": [{"physicalLocation": place}],
    }
