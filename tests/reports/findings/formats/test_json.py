"""JSON that obeys its published schema."""

from __future__ import annotations

import json

import jsonschema

from tests.cli.test_check import BOTH, FINE
from tests.paths import DOCS
from tests.reports.findings.formats.reports import both_keys, scanned, unclear
from virt_admit.reports.findings.formats import FORMATS


def test_json_is_what_its_schema_says(check):
    schema = json.loads((DOCS / "check.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    strict = closed(schema)
    exempt = 'exempt: {namespaces: [{match: shop, rules: ["*"], reason: moves}]}'
    for text in (
        check("json", rules=(), vm=BOTH, other=FINE.replace("name: db", "name: fine")),
        check("json", "vm.yaml", "--policy", "p.yaml", p=exempt),
        FORMATS["json"](scanned(both_keys())),
        FORMATS["json"](unclear("KeyError()")),
    ):
        jsonschema.validate(json.loads(text), strict, jsonschema.Draft202012Validator)


def closed(schema):
    """The schema of exactly this version: readers take additions, we make none unnoticed."""
    if isinstance(schema, dict):
        more = {"additionalProperties": False} if "properties" in schema else {}
        return {key: closed(value) for key, value in schema.items()} | more
    return [closed(each) for each in schema] if isinstance(schema, list) else schema
