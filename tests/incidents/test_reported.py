"""What objects of any kind report stands beside the verdicts of scan, drain, explain and upgrade,
where that is due.
"""

from __future__ import annotations

import json

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import TIME

from .machines import guest

LONG_AGO = "2020-01-01T00:00:00Z"
WHY = "the repository of charts answers with 403 Forbidden"
ENGINE = "engine image ei-1 is not deployed on node w2"


def git_repo(status="False"):
    ready = {"type": "Ready", "status": status, "message": WHY, "lastTransitionTime": LONG_AGO}
    return {
        "apiVersion": "fleet.cattle.io/v1alpha1",
        "kind": "GitRepo",
        "metadata": {"name": "apps", "namespace": "fleet-local"},
        "status": {"conditions": [ready]},
    }


@pytest.mark.parametrize(
    "words", [("scan",), ("scan", "-o", "json"), ("scan", "-o", "html"), ("upgrade",)]
)
def test_a_repository_that_is_not_ready(ask, words):
    assert WHY in ask([*plain((1, 8)), git_repo()], *words)
    assert WHY not in ask([*plain((1, 8)), git_repo("True")], *words)


def test_the_json_has_it_only_where_there_is_something(ask):
    (found,) = json.loads(ask([*plain((1, 8)), git_repo()], "scan", "-o", "json"))["reported"]
    assert found == {
        "kind": "GitRepo",
        "namespace": "fleet-local",
        "name": "apps",
        "text": f"Ready is False: {WHY}",
        "at": LONG_AGO,
        "also": [],
        "group": "",
    }
    assert "reported" not in json.loads(ask(plain((1, 8)), "scan", "-o", "json"))


def test_a_scan_of_a_namespace_says_nothing_of_others(ask):
    assert WHY not in ask([*plain((1, 8)), git_repo()], "scan", "-n", "vms")


def with_replica(items, name):
    """The cluster with an object of a storage operator that names the claim of a VM,
    and is not well.
    """
    ready = {"type": "Ready", "status": "False", "message": ENGINE, "lastTransitionTime": LONG_AGO}
    replica = {
        "apiVersion": "storage.example.com/v1",
        "kind": "Replica",
        "metadata": {"name": "r-1", "namespace": "storage"},
        "spec": {"claim": {"namespace": "vms", "name": name}},
        "status": {"conditions": [ready]},
    }
    return [*items, replica]


def pinned(name):
    """A VM that no drain can move."""
    items = guest(name)
    next(each for each in items if each["kind"] == "VirtualMachineInstance")["spec"][
        "nodeSelector"
    ] = {"kubernetes.io/hostname": "w1"}
    return items


@pytest.mark.parametrize(
    "words", [("explain", "vm/db", "-n", "vms"), ("drain", "w1"), ("explain", "node/w1")]
)
def test_around_a_vm_that_cannot_leave(ask, words):
    said = ask(with_replica([*plain((1, 6)), *pinned("db")], "db"), *words)
    assert f"Replica storage/r-1 reports: Ready is False: {ENGINE}" in said


@pytest.mark.parametrize("words", [("drain", "w1"), ("explain", "node/w1")])
def test_a_drain_that_ends_says_nothing_of_the_rest(ask, words):
    assert ENGINE not in ask(with_replica([*plain((1, 6)), *guest("db")], "db"), *words)


def test_not_in_a_list_of_all_nodes(ask):
    assert ENGINE not in ask(with_replica([*plain((1, 6)), *pinned("db")], "db"), "drain", "--all")


def test_around_a_vm_that_can_leave_only_what_lasts_is_said(ask):
    items, words = [*plain((1, 6)), *guest("db")], ("explain", "vm/db", "-n", "vms")
    volume = with_replica([], "db")[0] | {"metadata": {"name": "db", "namespace": "vms"}}
    assert ENGINE in ask([*items, volume], *words)
    young = with_replica(items, "db")
    young[-1]["metadata"] = volume["metadata"]
    young[-1]["status"]["conditions"][0]["lastTransitionTime"] = TIME.isoformat()
    assert ENGINE not in ask(young, *words)
