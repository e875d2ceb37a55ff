"""The VM that KubeVirt makes of a clone, patch by patch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.for_each import for_each
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import clones

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "db", "tier": "gold"}, "annotations": {"a": "1"}},
    "spec": {
        "domain": {
            "devices": {
                "interfaces": [{"name": "one", "macAddress": "02:00:00:00:00:01"}, {"name": "two"}]
            },
            "firmware": {"uuid": "u", "serial": "s"},
        },
        "volumes": [{"name": "root"}, {"name": "dump", "memoryDump": {"claimName": "dump"}}],
    },
}


def vm(**spec: Any) -> Object:
    metadata = {
        "name": "db",
        "namespace": "shop",
        "uid": "1",
        "labels": {"app": "db", "tier": "gold"},
        "annotations": {"note": "x", "restore.kubevirt.io/lastRestoreUID": "old"},
    }
    spec = {"runStrategy": "Always", "template": TEMPLATE, **spec}
    status = {"instancetypeRef": {"name": "u1"}}
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
    return Object({**kind, "metadata": metadata, "spec": {"one": 1, **spec}, "status": status})


def clone(*patches: Any, **spec: Any) -> Object:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in patches]
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "db"}
    spec = {
        "source": source,
        "target": {"kind": "VirtualMachine", "name": "new"},
        "patches": texts,
        **spec,
    }
    kind = {"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone"}
    return Object({**kind, "metadata": {"name": "copy", "namespace": "shop"}, "spec": spec})


def result(made: Object, source: Object | None = None) -> Object:
    source = source or vm()
    return clones.patched(made, source, clones.steps(made, source))


def test_the_clone_is_stopped_and_has_another_identity() -> None:
    source = vm()
    before = json.dumps(source.data)
    made = result(clone(), source)
    assert (made.name, made.namespace, made.at("metadata", "uid").present) == ("new", "shop", False)
    assert made.at("spec", "runStrategy").value == "Halted"
    assert made.at("status").value == {}
    spec = made.at("spec", "template", "spec")
    assert [
        each["macAddress"].value for each in spec.at("domain", "devices", "interfaces").items()
    ] == ["", ""]
    assert spec.at("domain", "firmware").value == {"uuid": "", "serial": ""}
    assert [each["name"].value for each in spec["volumes"].items()] == ["root"]
    assert json.dumps(source.data) == before


def test_running_is_switched_off_where_the_source_has_it() -> None:
    source = vm(running=True)
    del source.data["spec"]["runStrategy"]
    spec = result(clone(), source)["spec"]
    assert (spec["running"].value, spec["runStrategy"].present) == (False, False)


def test_new_addresses_and_a_new_serial() -> None:
    made = result(clone(newMacAddresses={"two": "02:00:00:00:00:02"}, newSMBiosSerial="t"))
    domain = made.at("spec", "template", "spec", "domain")
    assert [each["macAddress"].value for each in domain.at("devices", "interfaces").items()] == [
        "",
        "02:00:00:00:00:02",
    ]
    assert domain.at("firmware", "serial").value == "t"


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (None, {"app", "tier"}),
        ([], set()),
        (["*"], {"app", "tier"}),
        (["*", "!tier"], {"app"}),
        (["!tier"], set()),
        (["ti*"], {"tier"}),
        (["ier"], {"tier"}),
        (["!*", "*"], {"app", "tier"}),
    ],
)
def test_filters(filters: Any, kept: set[str]) -> None:
    made = result(clone(labelFilters=filters, template={"labelFilters": filters}))
    assert set(made.labels) == kept
    assert set(made.at("spec", "template", "metadata", "labels").map) == kept


def test_many_filters_of_many_keys_are_not_compared() -> None:
    source = vm()
    source.data["metadata"]["labels"] = {f"l{number}": "x" for number in range(1000)}
    assert result(clone(labelFilters=["l*"] * 1000), source).labels == source.labels
    with pytest.raises(Unseen, match="200 filters select of 1000"):
        result(clone(labelFilters=[f"l{number}" for number in range(200)]), source)


def test_filters_keep_the_annotation_of_the_restore() -> None:
    made = result(clone(annotationFilters=["nothing"]))
    assert set(made.annotations) == {clones.LAST_RESTORE}
    assert clones.maker(made) == "VirtualMachineClone"


@pytest.mark.parametrize(
    ("patch", "path", "value"),
    [
        ({"op": "replace", "path": "/spec/new", "value": 1}, "new", 1),
        (
            {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "b"}},
            "volumes",
            ["root", "b"],
        ),
        (
            {"op": "add", "path": "/spec/template/spec/volumes/-1", "value": {"name": "b"}},
            "volumes",
            ["root", "b"],
        ),
        (
            {"op": "add", "path": "/spec/template/spec/volumes/0", "value": {"name": "b"}},
            "volumes",
            ["b", "root"],
        ),
        ({"op": "remove", "path": "/spec/template/spec/volumes/-1"}, "volumes", []),
        ({"op": "move", "from": "/spec/runStrategy", "path": "/spec/new"}, "new", "Halted"),
        ({"op": "copy", "from": "/spec/runStrategy", "path": "/spec/new"}, "new", "Halted"),
        (
            {"op": "add", "path": "/spec/template/spec/domain/resources/x", "value": 1},
            "resources",
            {"x": 1},
        ),
    ],
)
def test_patches_as_go_applies_them(patch: dict[str, Any], path: str, value: Any) -> None:
    made = result(clone(patch))
    spec = made.at("spec", "template", "spec")
    found = {
        "new": made.at("spec", "new").value,
        "volumes": [each["name"].value for each in spec["volumes"].items()],
        "resources": spec.at("domain", "resources").value,
    }
    assert found[path] == value


@for_each(
    "patch",
    [
        "",
        "[]",
        "{",
        '"\\ud800"',
        "[" * 5000,
        {"op": "add", "path": "/spec/a/b/c", "value": 1},
        {"op": "add", "path": "spec", "value": 1},
        {"op": "add", "path": ["spec"], "value": 1},
        {"op": "add", "path": "", "value": 1},
        {"op": "remove", "path": "/spec/absent"},
        {"op": "remove", "path": "/spec/template/spec/volumes/1"},
        {"op": "remove", "path": "/spec/template/spec/volumes/-2"},
        {"op": "replace", "path": "/spec/template/spec/volumes/x", "value": 1},
        {"op": "add", "path": "/spec/template/spec/volumes/9", "value": 1},
        {"op": "test", "path": "/spec/runStrategy", "value": "Always"},
        {"op": "move", "from": "/spec/absent/x", "path": "/spec/a"},
        {"op": "test", "path": "/spec/one", "value": True},
        {"op": "replace", "path": "", "value": "x"},
        {"op": "jump", "path": "/spec/a", "value": 1},
        {"op": ["add"], "path": "/spec/a", "value": 1},
        "7",
    ],
)
def test_patches_that_do_not_fit_give_no_vm(patch: Any) -> None:
    with pytest.raises(Unseen, match="patches do not apply"):
        result(clone(patch))


def test_copies_that_double_a_value_end() -> None:
    """KubeVirt sets no limit (json-patch AccumulatedCopySizeLimit)."""
    double = {
        "op": "copy",
        "from": "/spec/template/spec/volumes",
        "path": "/spec/template/spec/volumes/-",
    }
    with pytest.raises(Unseen, match="copy too much"):
        result(clone(*[double] * 100))


def test_values_that_patches_nest_deeper_and_deeper_end() -> None:
    deeper = {"op": "copy", "from": "/spec", "path": "/spec/in"}
    with pytest.raises(Unseen):
        result(clone(*[deeper] * 400))


def test_whatever_a_patch_makes_of_the_kind_it_is_a_vm() -> None:
    made = result(clone({"op": "replace", "path": "", "value": [1]}))
    assert (made.kind, made["spec"].present) == ("VirtualMachine", False)
    assert result(clone({"op": "add", "path": "/kind", "value": "Pod"})).kind == "VirtualMachine"


@pytest.mark.parametrize(
    "source", [None, {}, {"kind": "Pod", "name": "db"}, {"kind": "VirtualMachineSnapshot"}]
)
def test_other_sources_are_unseen(source: Any) -> None:
    with pytest.raises(Unseen):
        clones.source(clone(source=source), Snapshot([vm()], complete=["*"]))


def test_a_source_of_strange_types() -> None:
    source = Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": "db"},
            "spec": [],
        }
    )
    assert result(clone(), source).at("spec", "runStrategy").value == "Halted"
    made = result(
        clone(labelFilters=[1, {}], newMacAddresses=[], template=[]),
        vm(template={"spec": {"domain": 7}}),
    )
    assert made.labels == {}
