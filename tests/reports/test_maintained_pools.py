"""An upgrade beside a NodeMaintenance that empties a node: what it waits for, and what it tells."""

from dataclasses import replace

import pytest

from tests.builders import manifest
from tests.cli.test_upgrade import kubevirt, node, pool, vm
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.outcomes import Wave
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.upgrade import text
from virt_admit.reports.upgrade.surroundings import with_reported

ROUND = 'error when evicting pods/"virt-launcher-db" -n "shop": global timeout reached: 30s'
NODES = "abc"


def worker(name, **spec):
    notes = {
        f"machineconfiguration.openshift.io/{key}": value
        for key, value in (("currentConfig", "r-1"), ("desiredConfig", "r-1"), ("state", "Done"))
    }
    found = node(name, {"node-role.kubernetes.io/worker": ""}, **spec)
    found.data["metadata"]["annotations"] = notes
    return found


def maintenance(phase="Running"):
    spec = {"nodeName": "a", "reason": "DIMM"}
    status = {"phase": phase, "lastError": ROUND, "pendingPods": ["virt-launcher-db"]}
    kind = ("nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "dimm")
    return manifest(*kind, spec=spec, status=status)


def result(*orders, strategy="LiveMigrate", migratable="True", marked=True):
    own = pool(configuration={"name": "r-1"})
    own.data["status"] = {"configuration": {"name": "r-1"}}
    kept = vm("db", "a", strategy=strategy, migratable=migratable)
    for each in kept:
        if each.kind == "VirtualMachineInstance" and marked:
            each.data["status"]["evacuationNodeName"] = "a"
    nodes = [worker(name, **({"unschedulable": True} if name == "a" else {})) for name in NODES]
    objects = [own, *nodes, *kept, *vm("web", "b"), kubevirt(), *orders]
    cluster = Snapshot(objects, ["*"], time="2026-01-02T00:00:00Z")
    return with_reported(rehearse(cluster, Options()), cluster)


def test_an_upgrade_waits_for_a_maintenance_that_goes_on():
    found = result(maintenance())
    printed = text.text(found)
    assert printed.startswith("No: the upgrade waits for NodeMaintenance dimm.\n")
    assert "\nwaits: the next update of MachineConfigPool worker would not begin: a, " in printed
    assert [each.name for each in found.reported] == []


def test_an_upgrade_updates_other_nodes_before_it_waits():
    masters = Wave(("m-0", "m-1"), Range(0, 0), Range(600, 600))
    printed = text.text(replace(result(maintenance()), waves=(masters,)))
    assert printed.startswith(
        "No: the upgrade waits for NodeMaintenance dimm once 2 nodes are updated.\n"
    )
    assert "2 VMs, migrated or restarted until then: " in printed


def test_without_a_maintenance_the_upgrade_stops():
    printed = text.text(result())
    assert printed.startswith("No: the upgrade stops (1 cause).\n")
    assert "\nstops: the next update of MachineConfigPool worker" in printed


def test_a_maintenance_whose_vm_cannot_leave_is_told_with_its_error():
    found = result(maintenance(), migratable="False")
    assert [each.name for each in found.reported] == ["dimm"]


@pytest.mark.parametrize(("marked", "moved"), [(True, 1), (False, 0)])
def test_a_vm_that_is_to_leave_moves_although_no_update_reaches_its_node(marked, moved):
    found = result(maintenance(), marked=marked)
    assert {each.name: each.moves for each in found.vms} == {"db": moved, "web": 0}
