"""Findings grouped by cause in text and Markdown."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from virt_admit.cli import main


@pytest.fixture
def cluster(tmp_path):
    """A VM with three claims that cannot be shared: one rule finds each of them."""
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}} for number in range(3)]
    disks = [{"name": volume["name"], "disk": {}} for volume in volumes]
    spec = {"evictionStrategy": "LiveMigrate", "domain": {"devices": {"disks": disks}}, "volumes": volumes}
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
    data = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "complete": ["*"], "items": [vm, *claims]}
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
    assert lines(*where)[0] == "0 denied, 1 warned, 0 audited of 1 object"
    assert RULE in lines(*where, "--all-lines")[0]


def test_check_text_keeps_one_line_for_each_finding(cluster):
    where = ("check", cluster / "vm.json", "--cluster", cluster / "cluster.json")
    assert len(findings(lines(*where))) == 3
    assert len(findings(lines(*where, "-o", "markdown"))) == 1
    assert len(findings(lines(*where, "-o", "markdown", "--all-lines"))) == 3
