"""The tables of known fields against the definitions that they are made from,
and what is never reported.
"""

import subprocess
import sys

import pytest

from tests import definitions
from tests.for_each import for_each
from tools import field_tables
from virt_admit.cli.commands.rules import as_data
from virt_admit.model import unknown_fields
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rules import load_rules

RULES = [rule for rule in load_rules() if rule.id.endswith(field_tables.SUFFIX)]
KINDS = sorted({kind for rule in RULES for kind in rule.kinds})
VERSIONS = [
    pytest.param(kind, version, id=f"{kind}/{version['name']}")
    for kind in KINDS
    for definition in (
        definitions.of(kind),
        *([definitions.older_hyperconverged()] if kind is kinds.HCO else []),
    )
    for version in definition["spec"]["versions"]
]


def full(schema):
    """An object with every field of a schema, and free keys where the schema allows them."""
    if schema.get("type") == "array":
        return [full(schema["items"])]
    below = {name: full(field) for name, field in schema.get("properties", {}).items()}
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        below["any.example.com/key"] = full(extra)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        below["anything"] = {"nested": True}
    return below or "value"


def paths(schema, *steps):
    """Yield the path of each map with declared fields alone: every other key in it is unknown."""
    if schema.get("type") == "array":
        yield from paths(schema["items"], *steps, 0)
        return
    properties = schema.get("properties")
    if not properties or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    yield steps
    for name, below in properties.items():
        if (steps, name) != ((), "metadata"):
            yield from paths(below, *steps, name)


def test_there_is_a_rule_for_each_prefix():
    prefixes = {rule.id.removesuffix(field_tables.SUFFIX) for rule in RULES}
    assert prefixes == {
        *(
            "vm",
            "vmi",
            "vmirs",
            "pool",
            "kubevirt",
            "hco",
            "cdi",
            "mhc",
            "capi-mhc",
            "nhc",
            "nm",
            "snrc",
            "far",
        )
    }
    assert len(KINDS) == 14


@for_each("kind, version", VERSIONS)
def test_no_field_of_a_schema_is_unknown(kind, version):
    data = full(version["schema"]["openAPIV3Schema"])
    data |= {
        "apiVersion": f"{kind.group}/{version['name']}",
        "kind": kind.kind,
        "metadata": {"labels": {"a": "b"}},
    }
    assert [unknown.path for unknown in unknown_fields.find(Object(data))] == []


@for_each("kind, version", VERSIONS)
def test_every_other_field_is_unknown(kind, version):
    schema = version["schema"]["openAPIV3Schema"] | {}
    schema["properties"] = {
        name: below for name, below in schema["properties"].items() if name != "status"
    }
    data = full(schema) | {
        "apiVersion": f"{kind.group}/{version['name']}",
        "kind": kind.kind,
        "metadata": {},
    }
    expected = set()
    for steps in paths(schema):
        place = Object(data).at(*steps).value
        if isinstance(place, dict):
            place["zzzUnknown"] = 1
            expected.add((*steps, "zzzUnknown"))
    assert len(expected) > 1
    assert {unknown.path for unknown in unknown_fields.find(Object(data))} == expected


def test_an_unknown_kind_has_no_table():
    assert list(unknown_fields.find(Object({"apiVersion": "v1", "kind": "Pod", "zzz": 1}))) == []
    assert unknown_fields.load(kinds.NODE) is None
    assert unknown_fields.defines(kinds.NODE, "zzz")


def test_a_path_is_defined_by_any_version():
    assert unknown_fields.defines(kinds.HCO, "spec", "virtualization")
    assert unknown_fields.defines(kinds.HCO, "spec", "certConfig", "ca", "duration")
    assert not unknown_fields.defines(kinds.HCO, "spec", "certificateRotation")
    assert unknown_fields.defines(kinds.HCO, "spec", "certConfig", of="v1beta1")
    assert not unknown_fields.defines(kinds.HCO, "spec", "certConfig", of="v1")
    assert unknown_fields.defines(kinds.HCO, "spec", "certConfig", of="v9")


def test_deep_lists_end():
    nested = []
    for _ in range(5000):
        nested = [nested]
    obj = Object(
        {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": {"template": nested}}
    )
    assert list(unknown_fields.find(obj)) == []


def test_no_table_is_read_before_an_object_needs_it():
    code = (
        "from virt_admit.cli.commands import check; from virt_admit.rules import load_rules; "
        "load_rules();from virt_admit.model import unknown_fields; "
        "print(unknown_fields.load.cache_info().currsize)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "0\n"
    )


def test_only_check_asks_these_rules():
    assert [as_data(rule)["scan"] or as_data(rule)["admission"] for rule in RULES] == [False] * len(
        RULES
    )
    assert not {rule.id for rule in RULES} & set(load_rules().in_scan.by_id)
