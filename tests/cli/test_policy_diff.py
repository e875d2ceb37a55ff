"""``virt-admit policy diff``."""

import json

import pytest
from click.testing import CliRunner

from virt_admit.cli import main

VM = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "db", "namespace": "shop"},
    "spec": {
        "running": True,
        "template": {"spec": {"evictionStrategy": "None", "domain": {"devices": {}}}},
    },
}


@pytest.fixture
def diff(tmp_path):
    cluster = tmp_path / "cluster.json"
    cluster.write_text(
        json.dumps(
            {
                "apiVersion": "virt-admit.io/v1alpha1",
                "kind": "Snapshot",
                "complete": ["*"],
                "items": [VM],
            }
        )
    )

    def run(old, new, *more):
        command = ["policy", "diff", old, new, "--cluster", str(cluster), *more]
        return CliRunner().invoke(main.virt_admit, command, standalone_mode=False)

    return run


def test_says_what_would_change(diff):
    result = diff("default", "strict")
    assert result.return_value == 1
    assert "VirtualMachine/shop/db: warn -> deny: spec.running: " in result.stdout
    assert "[vm-running-deprecated]" in result.stdout


def test_no_difference(diff):
    result = diff("default", "default")
    assert (result.return_value, result.stdout) == (0, "")


def test_json(diff):
    changes = {
        each["rule"]: each for each in json.loads(diff("audit", "default", "-o", "json").stdout)
    }
    assert changes["vm-running-deprecated"] | {"message": ""} == {
        "object": {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "namespace": "shop",
            "name": "db",
        },
        "rule": "vm-running-deprecated",
        "path": "spec.running",
        "message": "",
        "before": "audit",
        "after": "warn",
    }


def test_a_policy_that_is_none(diff):
    assert diff("default", "nonsense").exception
