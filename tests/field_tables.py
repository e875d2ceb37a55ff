"""The tables of known fields, generated from the CustomResourceDefinitions in ``tests/data/crds``.

A definition in ``variants/`` is another release of the same kind: its fields are known too.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from tests.paths import DATA
from virt_admit.model import releases
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.unknown_fields import ANY, FOLDER, FREE
from virt_admit.rules import load_rules

CRDS = DATA / "crds"
SUFFIX = "-field-unknown"


def files() -> dict[Path, str]:
    """Return the table of each kind that a rule about unknown fields judges."""
    judged = {kind for rule in load_rules() if rule.id.endswith(SUFFIX) for kind in rule.kinds}
    return {FOLDER / f"{kind.resource}.json": table(definitions(kind)) for kind in sorted(judged)}


def definitions(kind: Kind) -> list[dict[str, Any]]:
    """Return the definitions of a kind, the newest release first."""
    paths = [CRDS / f"{kind.resource}.yaml", *sorted((CRDS / "variants").glob(f"{kind.resource}.*.yaml"))]
    found = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in paths]
    newest = releases.releases(releases.KUBEVIRT)[-1]
    removed = [field for field, _ in releases.removed_fields(releases.KUBEVIRT, kind.kind, newest)]
    return [*found, *(_with(found[0], field) for field in removed if kind.group.endswith("kubevirt.io"))]


def _with(definition: dict[str, Any], field: str) -> dict[str, Any]:
    """Return the definition of an older release, which had one field more."""
    older: dict[str, Any] = copy.deepcopy(definition)
    for version in older["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for step in field.split("."):
            name = step.removesuffix("[]")
            schema = schema.setdefault("properties", {}).setdefault(name, {})
            schema = schema.get("items", schema.get("additionalProperties", schema)) if step != name else schema
    return older


def table(found: list[dict[str, Any]]) -> str:
    """Return the table of a kind as JSON, with one type in each line so that changes are readable."""
    types = _Types()
    versions: dict[str, list[int]] = {}
    for definition in found:
        for version in definition["spec"]["versions"]:
            node = types.add(version["schema"]["openAPIV3Schema"], top=True)
            known = versions.setdefault(version["name"], [])
            known += [] if node in known else [node]
    lines = ",\n".join(json.dumps(fields, separators=(",", ":")) for fields in types.all)
    return f'{{"versions":{json.dumps(versions)},\n"types":[\n{lines}\n]}}\n'


class _Types:
    """The distinct types of a schema. Equal types are stored once, which makes a table twenty times smaller."""

    def __init__(self) -> None:
        self.all: list[dict[str, int]] = [{}]
        self._index: dict[str, int] = {}

    def add(self, schema: dict[str, Any], *, top: bool = False) -> int:
        """Return the number of a schema's type."""
        if schema.get("type") == "array":
            return self.add(schema.get("items", {}))
        fields = {name: self.add(below) for name, below in sorted(schema.get("properties", {}).items())}
        if top:
            fields |= dict.fromkeys(("apiVersion", "kind", "metadata", "status"), FREE)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            fields[ANY] = self.add(extra)
        elif extra or any(
            schema.get(f"x-kubernetes-{mark}") for mark in ("preserve-unknown-fields", "embedded-resource")
        ):
            fields[ANY] = FREE
        if not fields or fields == {ANY: FREE}:
            return FREE
        key = json.dumps(fields)
        if key not in self._index:
            self._index[key] = len(self.all)
            self.all.append(fields)
        return self._index[key]
