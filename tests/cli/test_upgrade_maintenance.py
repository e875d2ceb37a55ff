"""``virt-admit upgrade`` where NodeMaintenances or Harvester empty the nodes."""

from tests.builders import manifest
from tests.cli.test_upgrade import kubevirt, node, vm
from tests.cli.test_upgrade_progress import AN_HOUR_AGO, cluster, progress, updaters
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver


def test_a_node_maintenance_that_runs():
    maintenance = manifest(
        "nodemaintenance.medik8s.io/v1beta1",
        "NodeMaintenance",
        "patch-b",
        metadata={"creationTimestamp": AN_HOUR_AGO},
        spec={"nodeName": "b"},
        status={"phase": "Running", "pendingPods": ["virt-launcher-db"]},
    )
    found = cluster(node("a"), node("b", unschedulable=True), vm("db", "b"), maintenance, kubevirt())

    assert updaters(found) == {
        "a": None,
        "b": {"kind": "NodeMaintenance", "name": "patch-b", "phase": "draining", "since": AN_HOUR_AGO},
    }
    assert progress(found)["in_flight"][0]["waits_for"] == "shop/db"
    assert progress(found)["waiting"] == ["a"]


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
    ghost = manifest("nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "nm", spec={"nodeName": "ghost"})

    assert progress(cluster(node("a"), node("b"), ghost, kubevirt())) is None


def harvester(**states):
    return manifest(
        "harvesterhci.io/v1beta1",
        "Upgrade",
        "hvst-upgrade-x",
        "harvester-system",
        metadata={"labels": {"harvesterhci.io/latestUpgrade": "true"}, "creationTimestamp": AN_HOUR_AGO},
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
    }
    assert updaters(found)["b"]["kind"] == "Upgrade"
