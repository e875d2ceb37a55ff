"""JSON schemas of the reports, printed from their types."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.paths import ROOT
from virt_admit.reports.drain.report import DrainReport
from virt_admit.reports.explain.check.report import HealthCheckReport
from virt_admit.reports.explain.node.report import NodeReport
from virt_admit.reports.explain.vm.report import VmReport
from virt_admit.reports.findings.findings_report import FindingsReport
from virt_admit.reports.outage.report import OutageReport
from virt_admit.reports.plan.report import PlanReport
from virt_admit.reports.upgrade.report import UpgradeReport
from virt_admit.reports.values import OMIT, key_of

REPORTS: Final[dict[str, type]] = {
    "drain": DrainReport,
    "outage": OutageReport,
    "plan": PlanReport,
    "upgrade": UpgradeReport,
}
"""The type of the report of each verb that answers several clusters one by one."""
_ADDITIONS: Final = (
    "Only additions: readers ignore keys that they do not know. Times are whole seconds, or RFC "
    "3339."
)


def files() -> dict[Path, str]:
    """Return the schema of each verb."""
    found = {verb: schema(verb, report) for verb, report in REPORTS.items()}
    found |= {"explain": explained(), "check": judged()}
    return {
        ROOT / "docs" / f"{verb}.schema.json": json.dumps(content, indent=2) + "\n"
        for verb, content in found.items()
    }


def explained() -> dict[str, Any]:
    """Return the schema of what ``virt-admit explain`` prints about one VM, one node,
    or health checks.
    """
    reports = (VmReport, NodeReport, HealthCheckReport)
    answers, types = _components(*reports)
    several = {
        "description": "Several health checks.",
        "type": "array",
        "minItems": 2,
        "items": answers[-1],
    }
    return _published("explain vm/NAME|node/NAME|nhc/NAME|FILE -o json", [*answers, several], types)


def judged() -> dict[str, Any]:
    """Return the schema of what ``virt-admit check`` and ``virt-admit scan`` print."""
    answers, types = _components(FindingsReport)
    return _published("check -o json, virt-admit scan -o json", answers, types)


def schema(verb: str, report: type) -> dict[str, Any]:
    """Return the schema of what ``virt-admit VERB -o json`` prints about one cluster,
    or about several.
    """
    (answer,), types = _components(report)
    clusters = {"$ref": "#/$defs/Clusters"}
    return _published(
        f"{verb} -o json", [answer, clusters], {**types, "Clusters": _clusters(answer)}
    )


def _published(
    command: str, answers: list[dict[str, Any]], types: dict[str, Any]
) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"virt-admit {command}",
        "description": _ADDITIONS,
        "oneOf": answers,
        "$defs": types,
    }


def _components(*reports: type) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a reference to each report, and the schemas of all types in them."""
    answers, types = msgspec.json.schema_components(reports, ref_template="#/$defs/{name}")
    values = {value.__name__: value for report in reports for value in _values(report)}
    return list(answers), {
        name: _keys(_on_one_line(of_type), values.get(name)) for name, of_type in types.items()
    }


def _on_one_line(of_type: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type with its description on one line: docstrings have several."""
    return {
        key: " ".join(value.split()) if key == "description" else value
        for key, value in of_type.items()
    }


def _values(of_type: Any) -> Iterator[type]:
    """Yield each type with fields in a type."""
    if dataclasses.is_dataclass(of_type) and isinstance(of_type, type):
        yield of_type
        for hint in typing.get_type_hints(of_type).values():
            yield from _values(hint)
    for argument in typing.get_args(of_type):
        yield from _values(argument)


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


def _keys(of_type: dict[str, Any], value: Any) -> dict[str, Any]:
    """Return the schema of a type with its keys as they are printed: in order, and all of them
    unless some are omitted.
    """
    if value is None:
        return of_type
    printed = {
        key_of(field.name): of_type["properties"][field.name] for field in dataclasses.fields(value)
    }
    omitted = {key_of(field.name) for field in dataclasses.fields(value) if OMIT in field.metadata}
    properties = {
        name: {key: value for key, value in of_field.items() if key != "default"}
        for name, of_field in printed.items()
    }
    required = [name for name in properties if name not in omitted]
    one_of_them = {} if required else {"minProperties": 1, "maxProperties": 1}  # a question
    return {**of_type, "properties": properties, "required": required, **one_of_them}
