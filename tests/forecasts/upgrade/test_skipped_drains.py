"""OpenShift with one control-plane node: its nodes are rebooted without a drain."""

import pytest

from tests.builders import complete, kubevirt, manifest
from tests.forecasts.drain.test_control_path import ROOM, guest, machine
from virt_admit.cli.commands import drain
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.reports.upgrade.text import text

TOPOLOGY = "machineconfiguration.openshift.io/controlPlaneTopology"
ROLE = "node-role.kubernetes.io/master"
POOL = manifest(
    "machineconfiguration.openshift.io/v1",
    "MachineConfigPool",
    "master",
    spec={"nodeSelector": {"matchLabels": {ROLE: ""}}},
)
BUDGET = manifest(
    "policy/v1",
    "PodDisruptionBudget",
    "db",
    "shop",
    spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    status={"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
)
POD = manifest(
    "v1",
    "Pod",
    "db-0",
    "shop",
    metadata={
        "labels": {"app": "db"},
        "ownerReferences": [{"kind": "StatefulSet", "name": "db", "controller": True}],
    },
    spec={"nodeName": "a"},
    status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
)


def node(topology):
    metadata = {
        "labels": {ROLE: "", "kubevirt.io/schedulable": "true", "kubernetes.io/hostname": "a"},
        "annotations": {TOPOLOGY: topology},
    }
    status = {"allocatable": ROOM, "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest("v1", "Node", "a", metadata=metadata, status=status)


def rehearse(topology, *objects):
    cluster = complete(node(topology), POOL, *objects)
    return rehearsal.rehearse(cluster, Options(), forecast_only=True)


@pytest.mark.parametrize("held", [(BUDGET, POD), (guest("db"), machine("db"))])
def test_what_holds_a_drain_does_not_hold_a_reboot_without_a_drain(held):
    assert rehearse("HighlyAvailable", *held).possible is False

    found = rehearse("SingleReplica", *held)
    assert found.possible is True
    assert not found.stops
    words = "OpenShift reboots a without a drain, as controlPlaneTopology is SingleReplica"
    assert words in found.rests_on


@pytest.mark.parametrize(
    ("strategy", "outcome", "words"),
    [
        ("Always", VmOutcome.AWAITS_NODE, "  down until their node is back: shop/db"),
        (
            "RerunOnFailure",
            VmOutcome.AWAITS_NODE,
            "  down until their node is back, or off if the guest shuts down cleanly before: "
            "shop/db",
        ),
        ("Manual", VmOutcome.STOPS, "  shut down, and stay off: shop/db"),
    ],
)
def test_the_reboot_ends_the_guests(strategy, outcome, words):
    found = rehearse("SingleReplica", guest("db"), machine("db", strategy))
    (vm,) = found.vms
    assert (vm.outcome, vm.shutdowns) == (outcome, 1)
    assert words in text(found).splitlines()
    assert "1 VM: all shut down on their nodes" in text(found).splitlines()


def only(label):
    usual = {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": "a"}
    metadata = {"labels": usual | label}
    status = {"allocatable": ROOM, "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest("v1", "Node", "a", metadata=metadata, status=status)


def harvester(label, *objects):
    return rehearsal.rehearse(complete(only(label), *objects), Options(), forecast_only=True)


MANAGED = {"harvesterhci.io/managed": "true"}
OTHER = manifest("v1", "Node", "b", metadata={"labels": MANAGED})


def test_harvester_stops_the_vms_of_its_only_node_instead_of_a_drain():
    held = (BUDGET, POD, guest("db"), machine("db"))
    assert harvester({}, *held).possible is False

    found = harvester(MANAGED, *held)
    assert found.possible is True
    assert "Harvester stops all VMs and does not drain a, its only node" in found.rests_on
    (vm,) = found.vms
    assert (vm.outcome, vm.shutdowns) == (VmOutcome.STOPS, 1)


def test_harvester_drains_one_of_two_nodes():
    assert harvester(MANAGED, BUDGET, POD, OTHER).possible is False


@pytest.mark.parametrize(
    ("topology", "answer"),
    [
        (
            "SingleReplica",
            "Yes: 1 node can be drained. A drain of each node would leave 1 VM stopped, an upgrade "
            "none.",
        ),
        ("HighlyAvailable", "Yes, at a cost: 1 node can be drained. 1 VM would stay stopped."),
    ],
)
def test_a_plan_of_all_drains_tells_what_an_upgrade_stops(topology, answer):
    vmi, vm = guest("db", "None"), machine("db", "RerunOnFailure")
    cluster = complete(node(topology), POOL, vmi, vm)
    found = drain.forecast(drain.rehearsed(plan(cluster), cluster), cluster)
    assert f"Can the cluster be upgraded today? {answer}" in found.text()
    assert rehearse(topology, vmi, vm).stopped == (topology == "HighlyAvailable")


def answer(cluster):
    return drain.forecast(drain.rehearsed(plan(cluster), cluster), cluster)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (
            [only(MANAGED)],
            "Yes, at a cost: Harvester stops all VMs and does not drain a, its only node. 1 VM "
            "would stay stopped.",
        ),
        (
            [node("SingleReplica"), POOL],
            "Yes: OpenShift reboots a without a drain, as controlPlaneTopology is SingleReplica.",
        ),
        ([only({})], "No: 1 of 1 node cannot be drained (1 VM, 1 other blocker): a."),
        ([only(MANAGED), OTHER], "No: 1 of 2 nodes cannot be drained (1 VM, 1 other blocker): a."),
    ],
    ids=["harvester", "openshift", "plain", "two"],
)
def test_drains_of_nodes_that_an_upgrade_does_not_drain_do_not_hold_it(nodes, says):
    found = answer(complete(*nodes, BUDGET, POD, guest("db"), machine("db")))
    last = found.text().splitlines()[-1]
    assert last == f"Can the cluster be upgraded today? {says}"
    assert found.code == 1  # a drain of that node does not end


@pytest.mark.parametrize(
    ("label", "stops"), [(MANAGED, True), ({}, False)], ids=["harvester", "plain"]
)
def test_the_vms_of_the_only_node_of_harvester_are_stopped(label, stops):
    updates = kubevirt(workloadUpdateStrategy={"workloadUpdateMethods": ["LiveMigrate"]})
    text = answer(complete(only(label), guest("db"), machine("db"), updates)).text()
    assert ("virtctl stop db -n shop" in text) is stops
    assert ("evictionStrategy" in text) is not stops
    assert ("Updates of running VMs" in text) is not stops
