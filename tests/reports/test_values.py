"""Reports as values: their JSON and the schema that is printed from their types."""

import enum
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import jsonschema
import pytest

from tests import blindness, random_vms
from tests.health_checks import capi, mhc, nhc
from tests.paths import DOCS
from tools import schemas
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.outage.explanation import explain
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.instances import vm_lookup
from virt_admit.policy.files import load_policy
from virt_admit.reports.drain import report as drain_report
from virt_admit.reports.explain.check import report as check_report
from virt_admit.reports.explain.judged_rules import Opinion
from virt_admit.reports.explain.node import collect as explain_node
from virt_admit.reports.explain.vm import collect as explain_vm
from virt_admit.reports.findings.findings_report import PatchOperation, findings_report
from virt_admit.reports.findings.judging import judge
from virt_admit.reports.upgrade import report as upgrade_report
from virt_admit.reports.values import UNLESS_GIVEN, as_data
from virt_admit.rules import load_rules

RULES = load_rules()
SEEDS = int(os.environ.get("SCHEMA_SEEDS", "2"))
"""Each takes seconds: everything about each VM, as far as it is known three times."""


class Color(enum.StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    class_: str | None
    color: Color


@dataclass(frozen=True, slots=True)
class Outer:
    from_: int
    inner: tuple[Inner, ...]
    counts: Mapping[str, int]


VALUE = Outer(1, (Inner(None, Color.RED),), {"a": 2})


def test_fields_are_keys_in_their_order_and_enumerations_are_their_words():
    data = {"from": 1, "inner": [{"class": None, "color": "red"}], "counts": {"a": 2}}
    assert json.dumps(as_data(VALUE)) == json.dumps(data)


def test_a_schema_demands_every_key_and_knows_the_words():
    schema = schemas.schema("try", Outer)
    jsonschema.validate(as_data(VALUE), schema)
    for wrong in (
        {"inner": [], "counts": {}},
        {"from": "one", "inner": [], "counts": {}},
        {"from": 1, "inner": [{"class": None, "color": "blue"}], "counts": {}},
        {"from": 1, "inner": [], "counts": {"a": "many"}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


@dataclass(frozen=True, slots=True)
class Sometimes:
    always: str | None
    cluster: str | None = field(default=None, metadata=UNLESS_GIVEN)


def test_some_fields_are_printed_only_if_they_are_given():
    schema = schemas.schema("try", Sometimes)
    for report, data in (
        (Sometimes(None), {"always": None}),
        (Sometimes("a", "b"), {"always": "a", "cluster": "b"}),
    ):
        assert as_data(report) == data
        jsonschema.validate(data, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"cluster": "b"}, schema)


def test_a_removal_has_no_value_and_null_is_one():
    steps = (PatchOperation("remove", "/a"), PatchOperation("replace", "/a", None))
    assert as_data(steps) == [
        {"op": "remove", "path": "/a"},
        {"op": "replace", "path": "/a", "value": None},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_explain_and_scan_print_obeys_the_schema(seed):
    cluster = blindness.everything(random_vms.random_cluster(seed))
    for verb, data in (
        *(("explain", as_data(report)) for report in explained(cluster)),
        *(
            ("explain", as_data(check_report.report(explain(check, cluster))))
            for check in (nhc(), mhc(), capi())
        ),
        (
            "check",
            as_data(
                findings_report(
                    judge(cluster, RULES.kinds, RULES.in_scan, load_policy("strict", RULES))
                )
            ),
        ),
    ):
        jsonschema.validate(data, json.loads((DOCS / f"{verb}.schema.json").read_text()))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_printed_obeys_the_schema(seed):
    cluster = blindness.everything(random_vms.random_cluster(seed))
    for verb, data in (
        ("drain", as_data(drain_report.report(plan(cluster)))),
        ("upgrade", as_data(upgrade_report.report(rehearse(cluster, Options(None, None, 10))))),
    ):
        jsonschema.validate(data, json.loads((DOCS / f"{verb}.schema.json").read_text()))


def explained(cluster):
    """Yield the report about every VM and every node,
    also where all but nodes and VMs is hidden.
    """
    opinion = Opinion(RULES.in_scan, load_policy("strict", RULES))
    hidden = [kind.resource for kind in kinds.ALL if kind not in (kinds.NODE, kinds.VM, kinds.VMI)]
    blind = Snapshot(cluster, ["*"], hidden)
    for known in (
        cluster,
        blind,
        Snapshot([obj for obj in cluster if obj.kind == "VirtualMachine"], ["*"]),
    ):
        for vm in known.known(kinds.VM):
            yield explain_vm.report(vm_lookup.find(vm.name, vm.namespace, known), known, opinion)
        for node in known.known(kinds.NODE):
            yield explain_node.report(node.name, known, opinion).report
