"""Where the reports look around: what is stuck, and nothing else."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.healthy.clusters import plain
from tests.incidents.machines import guest
from virt_admit.cli import main

NOW = "2026-11-26T12:00:00Z"
WHY = "engine image ei-1 is not deployed on node w2"


@pytest.fixture
def ask(tmp_path):
    def run(items, *words):
        snapshot = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "complete": ["*"], "items": items}
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps(snapshot))
        result = CliRunner().invoke(main.virt_admit, [*words, "--cluster", str(file)], standalone_mode=False)
        assert result.exception is None, result.exception
        return result.stdout

    return run


def with_replica(items, name):
    """The cluster with an object of a storage operator that names the claim of a VM, and is not well."""
    ready = {"type": "Ready", "status": "False", "message": WHY, "lastTransitionTime": NOW}
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
    next(each for each in items if each["kind"] == "VirtualMachineInstance")["spec"]["nodeSelector"] = {
        "kubernetes.io/hostname": "w1"
    }
    return items


@pytest.mark.parametrize("words", [("explain", "vm/db", "-n", "vms"), ("drain", "w1"), ("explain", "node/w1")])
def test_around_a_vm_that_cannot_leave(ask, words):
    said = ask(with_replica([*plain((1, 6)), *pinned("db")], "db"), *words)
    assert f"Replica storage/r-1 reports: Ready is False: {WHY}" in said


@pytest.mark.parametrize("words", [("explain", "vm/db", "-n", "vms"), ("drain", "w1"), ("explain", "node/w1")])
def test_not_around_one_that_can(ask, words):
    assert WHY not in ask(with_replica([*plain((1, 6)), *guest("db")], "db"), *words)


def test_not_in_a_list_of_all_nodes(ask):
    assert WHY not in ask(with_replica([*plain((1, 6)), *pinned("db")], "db"), "drain", "--all")
