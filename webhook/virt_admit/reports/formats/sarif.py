"""SARIF 2.1.0, for code scanning: GitHub, Azure DevOps, editors.

What an exemption silences is left out: GitHub opens alerts even of results that are marked as suppressed. What could
not be seen or read, and rules that crashed, are notifications: they are no problems of the manifests.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import Any, Final
from urllib.parse import quote

from virt_admit import __version__
from virt_admit.documents import edit
from virt_admit.documents.reader import DocumentError, Location
from virt_admit.model.objects import Object
from virt_admit.reports.formats.places import relative
from virt_admit.reports.report import DUPLICATE_KEY, Report, ReportRow, called
from virt_admit.rule import Action, Rule
from virt_admit.rules import load_rules
from virt_admit.settings import DOMAIN

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SITE: Final = f"https://{DOMAIN}"
ROOT: Final = "%SRCROOT%"
LEVEL: Final = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note", Action.OFF: "none"}


def render(report: Report) -> str:
    """The report as one run."""
    rules = [*map(_rule, load_rules()), _DUPLICATE_KEY]
    index = {rule["id"]: position for position, rule in enumerate(rules)}
    lines = report.lines()
    run = {
        "tool": {"driver": {"name": "virt-admit", "version": __version__, "informationUri": SITE, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The directory in which virt-admit was run."}}},
        "invocations": [
            {
                "executionSuccessful": not (report.unread or report.crashed),
                "toolExecutionNotifications": [
                    *map(_unread, report.unread),
                    *(_notification(line, index) for line in lines if line.action is None),
                ],
            }
        ],
        "results": [_result(line, index) for line in lines if line.action],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def link(rule: str) -> str:
    """The rule's page."""
    return f"{SITE}/rules#{rule}"


def _rule(rule: Rule) -> dict[str, Any]:
    return _described(rule.id, inspect.cleandoc(rule.doc or ""), rule.action)


def _described(rule: str, page: str, action: Action) -> dict[str, Any]:
    """``page``: the title, why, and what to do instead, in Markdown."""
    plain = page.replace("**", "").replace("``", "'")
    return {
        "id": rule,
        "shortDescription": {"text": plain.partition("\n")[0]},
        "fullDescription": {"text": " ".join(plain.partition("\n\nFix.")[0].split())},
        "helpUri": link(rule),
        "help": {"text": plain, "markdown": page},
        "defaultConfiguration": {"level": LEVEL[action], **({} if action else {"enabled": False})},
    }


_DUPLICATE_KEY: Final = _described(
    DUPLICATE_KEY,
    "A key stands twice in one map.\n\n**Why.** The last one wins, as in kubectl; the first has no effect.\n\n"
    "**Fix.** Remove one of them.",
    Action.WARN,
)


def _result(line: ReportRow, index: dict[str, int]) -> dict[str, Any]:
    return {
        "ruleId": line.rule,
        "ruleIndex": index[line.rule],
        "level": LEVEL[line.action or Action.OFF],
        "message": {"text": line.advice},
        "locations": [_location(line)],
        "partialFingerprints": {"virtAdmit/v1": fingerprint(line)},
        **_fixes(line),
    }


def fingerprint(line: ReportRow) -> str:
    """What stays the same while lines move: the rule, the object and the pointer, as 32 hexadecimal digits."""
    obj = line.judged.obj
    parts = (line.rule, obj.group, obj.kind, obj.namespace, obj.name, line.path.pointer)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _location(line: ReportRow) -> dict[str, Any]:
    obj = line.judged.obj
    location: dict[str, Any] = {
        "logicalLocations": [{"name": obj.name, "fullyQualifiedName": called(obj), "kind": "resource"}]
    }
    return location | ({"physicalLocation": _place(line.location)} if line.location else {})


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


def _fixes(line: ReportRow) -> dict[str, Any]:
    """The fix as a change of the text, where it is one."""
    document = line.judged.document
    if document is None or len(line.fix) != 1:
        return {}
    (step,) = line.fix
    if not Object(document.data).root.at(*step.path[:-1]).is_map:  # another fix comes first and makes it
        return {}
    try:
        start, end, text = edit.edit(document.part.text, document.span, step)
    except edit.CannotEdit:
        return {}
    place = document.part.location(start, end)
    replacement = {"deletedRegion": _region(place), "insertedContent": {"text": text}}
    file = {"artifactLocation": _artifact(place.file), "replacements": [replacement]}
    return {"fixes": [{"description": {"text": str(step)}, "artifactChanges": [file]}]}


def _notification(line: ReportRow, index: dict[str, int]) -> dict[str, Any]:
    return {
        "level": "error" if line.error else "note",
        "message": {"text": line.text},
        "associatedRule": {"id": line.rule, "index": index[line.rule]},
        "locations": [_location(line)],
    }


def _unread(error: DocumentError) -> dict[str, Any]:
    region = {"region": {"startLine": error.line, "startColumn": error.column}} if error.line else {}
    place = {"artifactLocation": _artifact(error.file), **region}
    return {"level": "error", "message": {"text": error.message}, "locations": [{"physicalLocation": place}]}
