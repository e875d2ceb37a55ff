"""Findings grouped by cause in text and Markdown."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.healthy.machines import claim, machine
from tests.healthy.parts import obj, owner, snapshot
from tests.incidents_platform.case import cluster as cluster_of
from tests.incidents_platform.operators import stored_version
from virt_admit.cli import main


@pytest.fixture
def cluster(tmp_path):
    """A VM with three claims that cannot be shared: one rule finds each of them."""
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        for number in range(3)
    ]
    disks = [{"name": volume["name"], "disk": {}} for volume in volumes]
    spec = {
        "evictionStrategy": "LiveMigrate",
        "domain": {"devices": {"disks": disks}},
        "volumes": volumes,
    }
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"runStrategy": "Always", "template": {"spec": spec}},
    }
    claims = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"c{number}", "namespace": "shop"},
            "spec": {"accessModes": ["ReadWriteOnce"]},
        }
        for number in range(3)
    ]
    data = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": ["*"],
        "items": [vm, *claims],
    }
    (tmp_path / "cluster.json").write_text(json.dumps(data))
    (tmp_path / "vm.json").write_text(json.dumps(vm))
    return tmp_path


RULE = "vm-live-migrate-not-migratable"


def lines(*arguments):
    out = CliRunner().invoke(main.virt_admit, [*map(str, arguments), "--select", RULE]).stdout
    return out.splitlines()


def findings(text):
    return [line for line in text if RULE in line and "warn" in line]


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_scan_has_one_line_for_each_cause_and_object(cluster, form):
    where = ("scan", "--cluster", cluster / "cluster.json", "-o", form)
    (line,) = findings(lines(*where))
    assert "volumes[0]" in line.replace("\\", "")
    assert "(also " in line
    assert "volumes" in line.partition("(also ")[2]
    assert len(findings(lines(*where, "--all-lines"))) == 3


def test_scan_text_begins_with_counts(cluster):
    where = ("scan", "--cluster", cluster / "cluster.json")
    assert lines(*where)[0] == "0 denied, 1 warned, 0 only audited of 1 object"
    assert RULE in lines(*where, "--all-lines")[0]


def test_check_text_keeps_one_line_for_each_finding(cluster):
    where = ("check", cluster / "vm.json", "--cluster", cluster / "cluster.json")
    assert len(findings(lines(*where))) == 3
    assert len(findings(lines(*where, "-o", "markdown"))) == 1
    assert len(findings(lines(*where, "-o", "markdown", "--all-lines"))) == 3


def scanned(items, tmp_path):
    path = tmp_path / "scanned.json"
    path.write_text(json.dumps(snapshot(items)))
    return CliRunner().invoke(main.virt_admit, ["scan", "--cluster", str(path)]).stdout.splitlines()


def test_what_fails_now_comes_before_what_would_fail(tmp_path):
    """An InstallPlan that failed is said before nodes without a health check,
    and these share one line.
    """
    items = [
        *stored_version().items,
        *machine("db", "n1", (1, 6), strategy="LiveMigrate", disks=["db"]),
        *claim("db"),
    ]
    found = [line for line in scanned(items, tmp_path) if line.endswith("]")]
    assert found[0].endswith("[cluster-operator-held]")
    (nodes,) = (line for line in found if line.endswith("[node-without-health-check]"))
    assert nodes.startswith("Node/n1 and 1 more: warn: ")


def test_vms_of_a_pool_repeat_nothing_that_is_said_of_the_pool(tmp_path):
    template = {"spec": {"domain": {"devices": {}}, "volumes": []}}
    vm = {"spec": {"runStrategy": "Always", "template": template}}
    pool = obj(
        "VirtualMachinePool",
        "pool.kubevirt.io/v1beta1",
        "farm",
        "vms",
        spec={"virtualMachineTemplate": vm},
    )
    own = {"ownerReferences": owner(pool)}
    vms = [
        obj("VirtualMachine", "kubevirt.io/v1", f"farm-{i}", "vms", metadata=own, **vm)
        for i in range(3)
    ]
    found = scanned([*cluster_of(), pool, *vms], tmp_path)
    rule = "[vm-eviction-strategy-default]"
    assert [line.partition(":")[0] for line in found if line.endswith(rule)] == [
        "VirtualMachinePool/vms/farm"
    ]
