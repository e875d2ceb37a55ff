"""Harvester's maintenance mode shuts VMs with a label down; kubectl drain migrates them."""

import pytest

from tests.forecasts.drain.test_vm_states import LAUNCHER, MIGRATES, row
from tests.forecasts.drain.vm_motion import ago, cluster, node, vmi
from virt_admit.cli.commands.drain import render
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import forecast
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI
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
    report = render(drain_plan.plan(snapshot, "a"), "text", None)

    assert row(snapshot).outcome == MIGRATES
    assert f"maintenance mode of this node shuts shop/db down instead, as the label {LABEL} asks" in report


@pytest.mark.parametrize(
    ("cordoned", "minutes", "said"), [(False, 0, True), (True, 59, False), (True, 61, True)], ids=str
)
def test_a_request_that_is_left_cordons_its_node_again(cordoned, minutes, said):
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": ago(60 * minutes)}
    spec = {"unschedulable": True, "taints": [taint]} if cordoned else {}
    found = node("a", **spec)
    marks = {"annotations": {"harvesterhci.io/drain-requested": "true"}}
    there = Object({**found.data, "metadata": {**found.data["metadata"], **marks}})
    report = render(drain_plan.plan(cluster(there, vmi(), LAUNCHER), "a"), "text", None)

    assert ("kubectl annotate node a harvesterhci.io/drain-requested-" in report) is said


def test_a_node_that_cannot_be_read_leaves_it_open():
    whole = maintained("Shutdown")
    (own,) = whole.known(VMI)

    assert forecast(own, Snapshot([own, LAUNCHER], [VMI.resource])).outcome == "unknown"
