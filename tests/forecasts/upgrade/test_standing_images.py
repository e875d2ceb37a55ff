"""Upgrades of Harvester that are not at their nodes yet: their image, and the phases of a plan."""

import pytest

from tests.builders import manifest
from tests.forecasts.upgrade.test_harvester_waits import imported, upgrade, upgraded
from virt_admit.reports.upgrade import text


def unmade(pod_minutes):
    """A disk whose importer waits for scratch space."""
    made = f"2027-03-01T11:{60 - pod_minutes}:00Z"
    disk = imported(0, phase="ImportScheduled")
    disk.data["status"]["conditions"] = []
    disk.metadata.map["creationTimestamp"] = made
    said = 'persistentvolumeclaim "hvst-scratch" not found'
    return disk, manifest(
        "v1",
        "Pod",
        "importer-hvst",
        "harvester-system",
        metadata={"labels": {"app": "containerized-data-importer"}, "creationTimestamp": made},
        spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "hvst"}}]},
        status={"conditions": [{"type": "PodScheduled", "status": "False", "message": said}]},
    )


def test_an_image_whose_importer_gets_no_scratch_space_stops_the_upgrade():
    (stop,) = upgraded(upgrade("2027-03-01T11:30:00Z"), *unmade(30)).stops
    assert (
        "hvst waits for 30 min for its image, which is not filled (ImportScheduled): pod "
        "importer-hvst waits for its scratch claim hvst-scratch, which CDI has not made for 30 min"
    ) in stop.reason


def test_an_image_whose_importer_finds_no_node_may_come():
    disk, pod = unmade(30)
    said = "0/3 nodes are available: 3 Insufficient memory."
    pod.data["status"]["conditions"][0]["message"] = said
    result = upgraded(upgrade("2027-03-01T11:30:00Z"), disk, pod)
    assert (result.possible, result.stops) == (None, ())
    (doubt,) = result.unseen
    assert doubt.startswith(
        "whether Upgrade harvester-system/hvst goes on: it waits for 30 min for its image, which "
        "is not filled (ImportScheduled): kube-scheduler finds no node for pod importer-hvst"
    )


@pytest.mark.parametrize(
    ("restarts", "reason", "stops"),
    [(6, "OOMKilled", True), (6, "Error", False), (3, "OOMKilled", False)],
)
def test_an_importer_that_is_ended_for_its_memory_stops_the_upgrade(restarts, reason, stops):
    """Another failure may pass with the next attempt."""
    ended = {"terminated": {"reason": reason, "exitCode": 137 if stops else 1}}
    box = {"name": "importer", "restartCount": restarts, "lastState": ended, "ready": False}
    _, pod = unmade(30)
    pod.data["spec"]["containers"] = [
        {"name": "importer", "resources": {"limits": {"memory": "600M"}}}
    ]
    pod.data["status"] = {"phase": "Running", "containerStatuses": [box]}
    result = upgraded(upgrade("2027-03-01T11:30:00Z"), imported(restarts), pod)
    told = [stop for stop in result.stops if "at its limit of 600M (OOMKilled" in stop.reason]
    assert bool(told) is stops
    assert (result.possible is False) is stops
    for stop in told:
        assert "podResourceRequirements.limits.memory" in stop.remedy


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (
            {"a": {"state": "Images preloaded"}, "b": {"state": "Images preloading"}},
            "it has been loading images onto the nodes for 4 min (now on b, done on a)",
        ),
        ({}, "its condition NodesPrepared has not been True for 4 min"),
    ],
)
def test_images_that_are_loaded_onto_nodes_are_told(states, says):
    begun = upgrade("2027-03-01T11:40:00Z", image="True", **states)
    begun.data["status"]["conditions"] += [
        {"type": "RepoReady", "status": "True", "lastUpdateTime": "2027-03-01T11:56:00Z"},
        {"type": "NodesPrepared", "status": "Unknown"},
    ]
    assert upgraded(begun).before_nodes == f"Upgrade hvst is not at its nodes yet: {says}"


def test_an_upgrade_before_its_nodes_does_not_begin_with_them_now():
    result = upgraded(upgrade("2027-03-01T11:56:00Z"), *unmade(3))
    assert (result.possible, result.before_nodes) == (
        True,
        "Upgrade hvst is not at its nodes yet: its condition ImageReady has not been True for "
        "4 min",
    )
    assert "begins after that" in text.text(result)
    assert "begins now" in text.text(upgraded(upgrade(image="True")))


@pytest.mark.parametrize(
    ("phase", "since", "possible"),
    [
        ("MetadataPopulating", "11:30", None),
        ("ClusterUpgrading", "11:30", True),
        ("ClusterUpgrading", "10:30", None),
        ("NodeUpgrading", "10:30", True),
    ],
)
def test_the_phases_of_a_plan(phase, since, possible):
    at = {"phase": phase, "phaseTransitionTimestamp": f"2027-03-01T{since}:00Z"}
    plan = manifest(
        "management.harvesterhci.io/v1beta1",
        "UpgradePlan",
        "hvst",
        metadata={"creationTimestamp": "2027-03-01T09:00:00Z"},
        status={"currentPhase": phase, "phaseTransitionTimestamps": [at]},
    )
    result = upgraded(plan)
    assert result.possible is possible
    assert (possible is None) == any(f"phase has been {phase}" in each for each in result.unseen)
