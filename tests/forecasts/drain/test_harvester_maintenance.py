"""Harvester's maintenance mode shuts VMs with a label down; kubectl drain migrates them."""

import json

import pytest
from click.testing import CliRunner

from tests.forecasts.drain.test_vm_states import LAUNCHER, MIGRATES, row
from tests.forecasts.drain.vm_motion import ago, cluster, node, vmi
from tests.healthy.parts import snapshot
from virt_admit.cli.commands import drain
from virt_admit.cli.main import virt_admit
from virt_admit.forecasts.drain import drain_plan, harvester_maintenance
from virt_admit.forecasts.drain.vm_outcomes import forecast
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object

LABEL = "harvesterhci.io/maintain-mode-strategy"


def maintained(strategy, *, asked=True):
    found = node("a", unschedulable=True)
    marks = {"harvesterhci.io/drain-requested": "true"} if asked else {}
    there = Object({**found.data, "metadata": {**found.data["metadata"], "annotations": marks}})
    own = vmi()
    labels = {LABEL: strategy} if strategy else {}
    own = Object({**own.data, "metadata": {**own.data["metadata"], "labels": labels}})
    return cluster(there, own, LAUNCHER)


@pytest.mark.parametrize(
    ("strategy", "outcome"),
    [
        ("", MIGRATES),
        ("Migrate", MIGRATES),
        ("Typo", MIGRATES),
        ("ShutdownAndRestartAfterEnable", "restarts elsewhere"),
        ("ShutdownAndRestartAfterDisable", "waits for its node"),
        ("Shutdown", "stops for good"),
    ],
)
def test_the_label_counts_while_maintenance_mode_is_asked_for(strategy, outcome):
    found = row(maintained(strategy))

    assert found.outcome == outcome
    assert (f"({LABEL}: {strategy})" in found.reason) is (outcome != MIGRATES)


def test_a_drain_by_hand_migrates_and_a_note_names_what_maintenance_mode_does():
    snapshot = maintained("Shutdown", asked=False)
    report = drain.forecast(drain_plan.plan(snapshot, "a"), snapshot).text()

    assert row(snapshot).outcome == MIGRATES
    assert (
        f"maintenance mode of this node shuts shop/db down instead, as the label {LABEL} asks"
        in report
    )


@pytest.mark.parametrize(
    ("cordoned", "minutes", "said"),
    [(False, 0, True), (True, 59, False), (True, 61, True)],
    ids=str,
)
def test_a_request_that_is_left_cordons_its_node_again(cordoned, minutes, said):
    taint = {
        "key": "node.kubernetes.io/unschedulable",
        "effect": "NoSchedule",
        "timeAdded": ago(60 * minutes),
    }
    spec = {"unschedulable": True, "taints": [taint]} if cordoned else {}
    found = node("a", **spec)
    marks = {"annotations": {"harvesterhci.io/drain-requested": "true"}}
    there = Object({**found.data, "metadata": {**found.data["metadata"], **marks}})
    snapshot = cluster(there, vmi(), LAUNCHER)
    report = drain.forecast(drain_plan.plan(snapshot, "a"), snapshot).text()

    assert ("kubectl annotate node a harvesterhci.io/drain-requested-" in report) is said


def test_a_node_that_cannot_be_read_leaves_it_open():
    whole = maintained("Shutdown")
    (own,) = whole.known(VMI)

    assert forecast(own, Snapshot([own, LAUNCHER], [VMI.resource])).outcome == "unknown"


STOPPED = f"{LABEL}-node-name"


def shut_down(strategy, *, on="a", status="completed", created=False):
    """Return a node in maintenance and a VM that was shut down for that."""
    found = node("a", unschedulable=True)
    marks = {"harvesterhci.io/maintain-status": status} if status else {}
    there = Object({**found.data, "metadata": {**found.data["metadata"], "annotations": marks}})
    metadata = {
        "name": "db",
        "namespace": "shop",
        "labels": {LABEL: strategy},
        "annotations": {STOPPED: on},
    }
    own = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "status": {"created": created},
    }
    return cluster(there, Object(own | {"spec": {"runStrategy": "Halted"}}))


@pytest.mark.parametrize(
    ("strategy", "starts"),
    [
        ("ShutdownAndRestartAfterEnable", "elsewhere once {} is in maintenance"),
        ("ShutdownAndRestartAfterDisable", "when {} leaves maintenance"),
    ],
)
def test_a_vm_that_was_shut_down_for_the_maintenance_is_said_with_its_start(strategy, starts):
    seen = shut_down(strategy)
    notes = drain_plan.node_plan("a", seen).notes
    assert (
        "shop/db was shut down for this maintenance. Harvester starts it again "
        f"{starts.format('this node')}."
    ) in notes
    said = harvester_maintenance.stopped(seen.get(VM, "shop", "db"), seen)
    assert said == (
        "was shut down for the maintenance of a, and Harvester starts it again "
        f"{starts.format('a')}"
    )


@pytest.mark.parametrize(
    "seen",
    [
        shut_down("Shutdown"),
        shut_down("ShutdownAndRestartAfterDisable", on="b"),
        shut_down("ShutdownAndRestartAfterDisable", status=""),
    ],
    ids=["for good", "for another node", "the maintenance is over"],
)
def test_a_vm_that_nothing_starts_is_not_said_to_start(seen):
    assert harvester_maintenance.stopped(seen.get(VM, "shop", "db"), seen) == ""
    assert not any(
        "was shut down for this" in note for note in drain_plan.node_plan("a", seen).notes
    )


def test_explain_says_why_such_a_vm_does_not_run(tmp_path):
    path = tmp_path / "cluster.json"
    items = [each.data for each in shut_down("ShutdownAndRestartAfterDisable")]
    path.write_text(json.dumps(snapshot(items)))
    found = CliRunner().invoke(
        virt_admit, ["explain", "vm/db", "-n", "shop", "--cluster", str(path)]
    )
    assert (
        "it is not running: it was shut down for the maintenance of a, and Harvester starts it "
        "again when a"
    ) in found.stdout
