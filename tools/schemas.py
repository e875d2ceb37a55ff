"""JSON schemas of the reports, printed from their types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.paths import ROOT
from virt_admit.reports.drain.report import DrainReport
from virt_admit.reports.explain.node.report import NodeReport
from virt_admit.reports.explain.vm.report import VmReport
from virt_admit.reports.outage.report import AskedLoss, OutageReport
from virt_admit.reports.plan.report import PlanReport
from virt_admit.reports.upgrade.report import UpgradeReport

REPORTS: Final[dict[str, type]] = {
    "drain": DrainReport,
    "outage": OutageReport,
    "plan": PlanReport,
    "upgrade": UpgradeReport,
}
"""The type of the report of each verb."""
_ADDITIONS: Final = "Only additions: readers ignore keys that they do not know. Times are whole seconds, or RFC 3339."


def files() -> dict[Path, str]:
    """Return the schema of each verb."""
    found = {verb: schema(verb, report) for verb, report in REPORTS.items()} | {"explain": explained()}
    return {
        ROOT / "docs" / f"{verb}.schema.json": json.dumps(content, indent=2) + "\n" for verb, content in found.items()
    }


def explained() -> dict[str, Any]:
    """Return the schema of what ``virt-admit explain`` prints about one VM or one node."""
    answers, types = msgspec.json.schema_components([VmReport, NodeReport], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "virt-admit explain vm/NAME|node/NAME -o json",
        "description": _ADDITIONS,
        "oneOf": list(answers),
        "$defs": {name: _keys(of_type) for name, of_type in types.items()},
    }


def schema(verb: str, report: type) -> dict[str, Any]:
    """Return the schema of what ``virt-admit VERB -o json`` prints about one cluster, or about several."""
    (answer,), types = msgspec.json.schema_components([report], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"virt-admit {verb} -o json",
        "description": _ADDITIONS,
        "oneOf": [answer, {"$ref": "#/$defs/Clusters"}],
        "$defs": {**{name: _keys(of_type) for name, of_type in types.items()}, "Clusters": _clusters(answer)},
    }


def _clusters(answer: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string"}
    answered = {
        "allOf": [answer],
        "properties": {"cluster": text, "error": {"type": "null"}},
        "required": ["cluster", "error"],
    }
    unread = {
        "description": "A cluster that could not be read.",
        "type": "object",
        "properties": {"cluster": text, "error": text},
        "required": ["cluster", "error"],
        "additionalProperties": False,
    }
    return {
        "description": "The answers about several clusters.",
        "type": "object",
        "properties": {
            "version": {"const": 1},
            "clusters": {"type": "array", "minItems": 2, "items": {"oneOf": [answered, unread]}},
        },
        "required": ["version", "clusters"],
    }


def _keys(of_type: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type with its keys as they are printed: all of them always, but one of a question."""
    if "properties" not in of_type:
        return of_type
    properties = {
        name.removesuffix("_"): {key: value for key, value in of_field.items() if key != "default"}
        for name, of_field in of_type["properties"].items()
    }
    if of_type["title"] == AskedLoss.__name__:
        return {**of_type, "properties": properties, "required": [], "minProperties": 1, "maxProperties": 1}
    return {**of_type, "properties": properties, "required": list(properties)}
