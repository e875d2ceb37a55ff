"""Snapshots with values that no API server stores: they are refused,
because such a field would hide what it says.
"""

from __future__ import annotations

import copy
import json

import pytest
from click import ClickException
from click.testing import CliRunner

from tests import definitions
from tests.forecasts.repair.broken_clusters import cluster, vm
from tests.forecasts.repair.budget_causes import BUDGETS
from tests.paths import EXAMPLES
from tests.random_motion import moving_cluster
from virt_admit.cli import main
from virt_admit.kube import snapshots
from virt_admit.kube.stored_types import TYPES, wrong_type
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.settings import SettingError

HEAD = {
    "apiVersion": "virt-admit.io/v1alpha1",
    "kind": "Snapshot",
    "complete": ["*"],
    "time": "2026-01-01T12:00:00Z",
}


def saved(folder, objects, **head):
    file = folder / "cluster.json"
    file.write_text(json.dumps(HEAD | head | {"items": objects}))
    return file


def changed(objects, kind, path, value):
    """Return the objects with one value in the first of a kind."""
    found = copy.deepcopy(objects)
    place = next(each for each in found if each["kind"] == kind)
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return found


BUDGET = BUDGETS["a budget that never allows"][0]
SELECTOR = ("spec", "selector")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("spec",), [], "spec must be a map"),
        (SELECTOR, ["a"], "spec.selector must be a map"),
        ((*SELECTOR, "matchLabels"), 7, "spec.selector.matchLabels must be a map"),
        ((*SELECTOR, "matchLabels", "app"), True, "spec.selector.matchLabels.app must be text"),
        ((*SELECTOR, "matchExpressions"), {}, "spec.selector.matchExpressions must be a list"),
        (
            ("status", "disruptionsAllowed"),
            True,
            "status.disruptionsAllowed must be a whole number",
        ),
        (("metadata", "labels"), {"a": 1}, "metadata.labels.a must be text"),
    ],
)
def test_a_budget_that_nobody_can_read_does_not_vanish(tmp_path, path, value, says):
    objects = [obj.data for obj in cluster(*BUDGET)]
    verb = ["drain", "--all", "--cluster", str(saved(tmp_path, objects))]
    assert CliRunner().invoke(main.virt_admit, verb, standalone_mode=False).return_value == 1
    file = saved(tmp_path, changed(objects, "PodDisruptionBudget", path, value))
    with pytest.raises(SettingError) as refused:
        snapshots.load(file)
    assert (
        f"cluster.json: PodDisruptionBudget shop/web: {says}. No API server stores that. Save"
        in str(refused.value)
    )
    assert isinstance(
        CliRunner().invoke(main.virt_admit, verb, standalone_mode=False).exception, ClickException
    )


@pytest.mark.parametrize("value", [7, [], {"labels": 7}, {"labels": {"a": ["b"]}, "x": {"y": 1}}])
def test_what_has_no_schema_may_be_anything(tmp_path, value):
    """A user may store it, and must not be able to break the snapshots of the cluster."""
    objects = [obj.data for obj in cluster(vm())]
    found = changed(objects, "VirtualMachine", ("spec", "template", "metadata"), value)
    assert len(list(snapshots.load(saved(tmp_path, found)))) == len(objects)


def test_null_is_absent(tmp_path):
    objects = [obj.data for obj in cluster(vm())]
    snapshots.load(
        saved(tmp_path, changed(objects, "VirtualMachineInstance", ("spec", "nodeSelector"), None))
    )


def test_ordinary_manifests_and_unreadable_kinds_are_not_checked(tmp_path):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"zone": 1}}}
    file = tmp_path / "node.yaml"
    file.write_text(json.dumps(node))
    assert len(list(snapshots.load(file))) == 1
    assert not list(snapshots.load(saved(tmp_path, [node], unreadable=["nodes"])))


def test_the_objects_of_other_tests_are_stored_like_this():
    stuck = json.loads((EXAMPLES / "clusters" / "stuck.json").read_text())["items"]
    for data in (*stuck, *(each for seed in range(40) for each in moving_cluster(seed))):
        kind = kinds.of(Object(data))
        assert kind is None or not wrong_type(Object(data), kind), data


def test_the_order_of_keys_does_not_count():
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"labels": {"b": 1, "a": 2}},
        "spec": {"unschedulable": 1},
    }
    other = node | {"metadata": {"labels": {"a": 2, "b": 1}}}
    assert (
        wrong_type(Object(node), kinds.NODE)
        == wrong_type(Object(other), kinds.NODE)
        == "metadata.labels.a must be text"
    )


JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


@pytest.mark.parametrize(
    "kind",
    [kind for kind in TYPES if kind.group.endswith((".io", ".com")) and ".k8s." not in kind.group],
    ids=str,
)
def test_the_definitions_say_the_same(kind):
    definitions.needs_real(kind)
    found = definitions.of(kind)
    (schema,) = [
        each["schema"]["openAPIV3Schema"]
        for each in found["spec"]["versions"]
        if each["name"] == kind.versions[0]
    ]
    assert not list(differences(TYPES[kind], schema, ""))


def differences(expected, schema, path):
    """Yield the fields that upstream's schema does not have, or of which it accepts other types."""
    if schema is None or schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{path}: {schema}"
    elif isinstance(expected, dict):
        if schema.get("type") != "object":
            yield f"{path}: {schema}"
        for key, below in expected.items():
            free = schema.get("additionalProperties")
            names = schema.get("properties", {}) if key == "*" and not free else {key: below}
            for name in names:
                of_name = free if key == "*" and free else schema.get("properties", {}).get(name)
                yield from differences(below, of_name, f"{path}.{name}")
    elif isinstance(expected, list):
        if schema.get("type") != "array":
            yield f"{path}: {schema}"
        for below in expected:
            yield from differences(below, schema.get("items"), f"{path}[]")
    else:
        accepted = (
            {"string", "integer"}
            if schema.get("x-kubernetes-int-or-string")
            else {schema.get("type")}
        )
        if not accepted <= {JSON_TYPES[each] for each in expected}:
            yield f"{path}: {schema}"
