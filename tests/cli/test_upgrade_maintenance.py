"""``virt-admit upgrade`` where NodeMaintenances or Harvester empty the nodes."""

import pytest

from tests.builders import manifest
from tests.cli.test_upgrade import kubevirt, node, vm
from tests.cli.test_upgrade_progress import AN_HOUR_AGO, cluster, progress, updaters
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.reports.upgrade import text
from virt_admit.reports.upgrade.follow import UpgradeFollower


def test_a_node_maintenance_that_runs():
    maintenance = manifest(
        "nodemaintenance.medik8s.io/v1beta1",
        "NodeMaintenance",
        "patch-b",
        metadata={"creationTimestamp": AN_HOUR_AGO},
        spec={"nodeName": "b"},
        status={"phase": "Running", "pendingPods": ["virt-launcher-db"]},
    )
    found = cluster(
        node("a"), node("b", unschedulable=True), vm("db", "b"), maintenance, kubevirt()
    )

    assert updaters(found) == {
        "a": None,
        "b": {
            "kind": "NodeMaintenance",
            "name": "patch-b",
            "phase": "draining",
            "since": AN_HOUR_AGO,
        },
    }
    assert progress(found)["in_flight"][0]["waits_for"] == "shop/db"
    assert progress(found)["waiting"] == ["a"]


def test_a_maintenance_is_no_update_that_has_begun():
    maintenance = manifest(
        "nodemaintenance.medik8s.io/v1beta1",
        "NodeMaintenance",
        "firmware",
        metadata={"creationTimestamp": AN_HOUR_AGO},
        spec={"nodeName": "b"},
        status={"phase": "Succeeded", "lastUpdate": AN_HOUR_AGO},
    )
    found = cluster(node("a"), node("b", unschedulable=True), maintenance, kubevirt())
    result = rehearse(found, Options())
    so_far = result.progress
    lines = text.text(result)

    assert text.so_far(so_far) == "The update of no node is known to have begun."
    assert text.verdict(result).startswith("Yes: 1 node in 10 min")
    assert "\n  in maintenance, not counted: b\n" in lines
    (said,) = map(text.in_flight, so_far.in_flight)
    assert said == "b has been in maintenance (NodeMaintenance firmware) for 60 min."


@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        ({"harvesterhci.io/drain-requested": "true"}, True),
        ({"harvesterhci.io/maintain-status": "completed"}, True),
        ({}, False),
    ],
    ids=["it is emptied", "it is empty", "cordoned alone"],
)
def test_a_maintenance_mode_of_harvester_is_no_update_that_has_begun(annotations, kept):
    own = node("b", unschedulable=True)
    own.data["metadata"]["annotations"] = annotations
    result = rehearse(cluster(node("a"), own, kubevirt()), Options())

    assert ("\n  in maintenance, not counted: b\n" in text.text(result)) is kept
    assert ("The update of no node is known to have begun." in text.text(result)) is kept


def test_a_node_maintenance_that_failed_stops_no_upgrade():
    maintenance = manifest(
        "nodemaintenance.medik8s.io/v1beta1",
        "NodeMaintenance",
        "patch-b",
        spec={"nodeName": "b"},
        status={"phase": "Failed", "lastError": "failed to extend lease owned by us 3 times"},
    )
    found = cluster(node("a"), node("b"), maintenance, kubevirt())

    assert (rehearse(found, Options()).possible, progress(found)) == (True, None)
    assert updaters(found)["b"]["phase"] == "failing"


def test_a_maintenance_of_a_node_that_does_not_exist_is_no_progress():
    ghost = manifest(
        "nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "nm", spec={"nodeName": "ghost"}
    )

    assert progress(cluster(node("a"), node("b"), ghost, kubevirt())) is None


def harvester(**states):
    return manifest(
        "harvesterhci.io/v1beta1",
        "Upgrade",
        "hvst-upgrade-x",
        "harvester-system",
        metadata={
            "labels": {"harvesterhci.io/latestUpgrade": "true"},
            "creationTimestamp": AN_HOUR_AGO,
        },
        status={
            "conditions": [{"type": "Completed", "status": "Unknown"}],
            "nodeStatuses": {name: {"state": state} for name, state in states.items()},
        },
    )


def test_an_upgrade_of_harvester():
    found = cluster(
        *map(node, "abcd"),
        harvester(a="Succeeded", b="Pre-draining", c="Images preloaded"),
        vm("db", "b"),
        kubevirt(),
    )

    assert rehearse(found, Options()).driver is Driver.PLAIN
    assert progress(found) == {
        "done": ["a"],
        "in_flight": [{"node": "b", "phase": "draining", "since": None, "waits_for": "shop/db"}],
        "next": [],
        "waiting": ["c", "d"],
        "notes": [],
    }
    assert updaters(found)["b"]["kind"] == "Upgrade"


def test_an_upgrade_of_harvester_that_is_paused_before_a_node():
    states = {"a": "Succeeded", "b": "Node-upgrade paused", "c": "Images preloaded"}
    found = cluster(*map(node, "abc"), harvester(**states), kubevirt())
    result = rehearse(found, Options())

    assert result.possible is False
    assert [stop.reason for stop in result.stops] == ["Upgrade hvst-upgrade-x is paused before b"]
    assert (
        "kubectl edit upgrades.harvesterhci.io hvst-upgrade-x -n harvester-system"
        in result.stops[0].remedy
    )
    assert (progress(found)["next"], progress(found)["waiting"]) == ([], ["b", "c"])


def upgrade_plan(phase="NodeUpgrading", **states):
    return manifest(
        "management.harvesterhci.io/v1beta1",
        "UpgradePlan",
        "hvst-upgrade-7xxgn",
        "",
        metadata={"creationTimestamp": AN_HOUR_AGO},
        spec={"version": "v1.8.0"},
        status={
            "currentPhase": phase,
            "nodeUpgradeStatuses": {name: {"state": state} for name, state in states.items()},
        },
    )


def test_an_upgrade_plan_of_harvester():
    """Source: harvester/upgrade-toolkit:api/v1beta1/upgradeplan_types.go#NodeUpgradeState."""
    states = {"a": "PostDrained", "b": "PreDraining", "c": "ImagePreloaded"}
    found = cluster(*map(node, "abcd"), upgrade_plan(**states), vm("db", "b"), kubevirt())

    assert progress(found) == {
        "done": ["a"],
        "in_flight": [{"node": "b", "phase": "draining", "since": None, "waits_for": "shop/db"}],
        "next": [],
        "waiting": ["c", "d"],
        "notes": [],
    }
    assert updaters(found)["b"]["kind"] == "UpgradePlan"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_upgrade_plan_that_has_ended_is_no_progress(phase):
    ended = upgrade_plan(phase, a="ImageCleaned", b="PreDrainFailed")

    assert progress(cluster(node("a"), node("b"), ended, kubevirt())) is None


def test_a_node_whose_upgrade_plan_failed_stops_the_upgrade():
    found = cluster(
        node("a"), node("b"), upgrade_plan(a="PreDrainFailed", b="ImagePreloaded"), kubevirt()
    )
    result = rehearse(found, Options())

    assert (result.possible, [stop.node for stop in result.stops]) == (False, ["a"])


def test_an_upgrade_plan_that_is_paused_before_a_node():
    states = {"a": "PostDrained", "b": "UpgradePaused", "c": "ImagePreloaded"}
    result = rehearse(cluster(*map(node, "abc"), upgrade_plan(**states), kubevirt()), Options())

    assert result.possible is False
    assert [stop.reason for stop in result.stops] == [
        "UpgradePlan hvst-upgrade-7xxgn is paused before b"
    ]
    assert "kubectl edit upgradeplan hvst-upgrade-7xxgn" in result.stops[0].remedy


def maintained(phase):
    return manifest(
        "nodemaintenance.medik8s.io/v1beta1",
        "NodeMaintenance",
        "patch-b",
        metadata={"creationTimestamp": AN_HOUR_AGO},
        spec={"nodeName": "b"},
        status={"phase": phase},
    )


def test_the_end_of_a_maintenance_rests_on_its_administrator():
    found = cluster(node("a"), node("b", unschedulable=True), maintained("Succeeded"), kubevirt())

    assert (
        "an administrator ends the maintenance of b in that time"
        in rehearse(found, Options()).rests_on
    )


def test_a_node_that_tuppr_reboots_rests_on_its_upgrade():
    status = {"phase": "Rebooting", "currentNodes": ["b"]}
    upgrade = manifest(
        "tuppr.home-operations.com/v1alpha1", "TalosUpgrade", "cluster", status=status
    )
    nodes = node("a"), node("b", unschedulable=True)
    found = cluster(*nodes, maintained("Succeeded"), upgrade, kubevirt())
    assert "TalosUpgrade cluster ends the maintenance of b in that time" in (
        rehearse(found, Options()).rests_on
    )


@pytest.mark.parametrize("leaves", [True, False])
def test_a_node_that_leaves_with_its_machine_rests_on_no_administrator(leaves):
    own = node("b", unschedulable=True)
    own.data["metadata"]["annotations"] = {"harvesterhci.io/maintain-status": "completed"}
    machine = manifest(
        *("cluster.x-k8s.io/v1beta1", "Machine", "m-b", "fleet-local"),
        metadata={"deletionTimestamp": AN_HOUR_AGO} if leaves else {},
        status={"nodeRef": {"name": "b"}},
    )
    rests_on = rehearse(cluster(node("a"), own, machine, kubevirt()), Options()).rests_on
    assert ("ends the maintenance of b" in " ".join(rests_on)) is not leaves


def ended_harvester(status):
    found = harvester(a="Succeeded", b="Failed")
    found.data["status"]["conditions"] = [{"type": "Completed", "status": status}]
    return found


@pytest.mark.parametrize(
    ("before", "after", "ended"),
    [
        (harvester(a="Succeeded", b="Pre-draining"), ended_harvester("False"), ""),
        (
            harvester(a="Succeeded", b="Pre-draining"),
            ended_harvester("True"),
            "no node is being updated any more",
        ),
        (
            upgrade_plan(a="PostDrained", b="PreDraining"),
            upgrade_plan("Failed", a="PostDrained"),
            "",
        ),
        (maintained("Running"), maintained("Failed"), ""),
        (maintained("Running"), kubevirt(), "no node is being updated any more"),
    ],
)
def test_following_does_not_end_well_where_an_update_failed(before, after, ended):
    follower = UpgradeFollower(Options())

    assert follower.look(cluster(node("a"), node("b"), before)).done == ""
    assert follower.look(cluster(node("a"), node("b"), after)).done == ended


def test_a_node_that_only_a_vmi_names_is_not_updated():
    result = rehearse(cluster(node("a"), node("b"), vm("db", "deleted"), kubevirt()), Options())

    assert {name for wave in result.waves for name in wave.nodes} == {"a", "b"}
