"""What objects of any kind report is said beside the verdicts of scan, drain, explain and upgrade."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.healthy.clusters import plain
from virt_admit.cli import main

WHY = "the repository of charts answers with 403 Forbidden"
SCAN = ("scan",)


def managed_chart(status="False"):
    ready = {"type": "Ready", "status": status, "message": WHY, "lastTransitionTime": "2020-01-01T00:00:00Z"}
    return {
        "apiVersion": "management.cattle.io/v3",
        "kind": "ManagedChart",
        "metadata": {"name": "harvester", "namespace": "fleet-local"},
        "status": {"conditions": [ready]},
    }


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


@pytest.mark.parametrize("words", [SCAN, ("scan", "-o", "json"), ("scan", "-o", "html"), ("upgrade",)])
def test_a_chart_that_is_not_ready(ask, words):
    assert WHY in ask([*plain((1, 8)), managed_chart()], *words)
    assert WHY not in ask([*plain((1, 8)), managed_chart("True")], *words)


def test_the_json_has_it_only_where_there_is_something(ask):
    (found,) = json.loads(ask([*plain((1, 8)), managed_chart()], *SCAN, "-o", "json"))["reported"]
    assert found == {
        "kind": "ManagedChart",
        "namespace": "fleet-local",
        "name": "harvester",
        "text": f"Ready is False: {WHY}",
        "at": "2020-01-01T00:00:00Z",
    }
    assert "reported" not in json.loads(ask(plain((1, 8)), *SCAN, "-o", "json"))


def test_a_scan_of_a_namespace_says_nothing_of_others(ask):
    assert WHY not in ask([*plain((1, 8)), managed_chart()], "scan", "-n", "vms")
