"""An upgrade of Harvester whose node nothing asks its VMs to leave has no known end."""

from __future__ import annotations

import pytest

from tests.healthy.parts import ago, obj, snapshot
from tests.incidents_platform.case import only
from tests.incidents_platform.storage import (
    upgrade_waits_for_the_replica_of_its_node,
    upgrade_without_the_drain_taint,
)
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

PLAN = "management.harvesterhci.io/upgrade-plan"


@pytest.mark.parametrize("tainted", [False, True])
def test_the_taint_that_makes_kubevirt_move_the_vms(tainted: bool) -> None:
    incident = upgrade_without_the_drain_taint()
    if tainted:
        only(incident.items, "Node", "h2")["spec"]["taints"] = [
            {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
        ]
    time = incident.snapshot["time"]
    found = rehearse(Snapshot(map(Object, incident.items), ["*"], time=time), Options())

    assert found.possible is (True if tainted else None)
    assert any("nothing asks vms/web to leave" in what for what in found.unseen) is not tainted


@pytest.mark.parametrize(
    ("manager", "minutes", "active", "stands"),
    [
        ("harvester", 51, 1, True),
        ("kubectl-taint", 51, 1, False),
        ("harvester", 3, 1, False),
        ("harvester", 90, 1, False),  # before the drain
        ("harvester", 51, 0, False),
    ],
)
@pytest.mark.parametrize("label", ["harvesterhci.io/upgrade", PLAN])
def test_the_taint_that_harvester_takes_away(
    manager: str, minutes: int, active: int, stands: bool, label: str
) -> None:
    items = upgrade_without_the_drain_taint().items
    written = {
        "manager": manager,
        "time": ago(minutes=minutes),
        "fieldsV1": {"f:spec": {"f:taints": {}}},
    }
    earlier = {**written, "manager": "kubelet", "time": ago(days=9)}
    only(items, "Node", "h2")["metadata"]["managedFields"] = [written, earlier]
    job = obj(
        "Job",
        "batch/v1",
        "hvst-upgrade-x-pre-drain-h2",
        "harvester-system",
        metadata={"labels": {label: "hvst-upgrade-x", "harvesterhci.io/node": "h2"}},
    )
    job["status"] = {"active": active, "startTime": ago(minutes=52)}
    time = snapshot([])["time"]
    found = rehearse(Snapshot(map(Object, [*items, job]), ["*"], time=time), Options())

    lost = "waits for vms/web to leave, which nothing asks to: the node has no taint kubevirt.io/"
    assert any(lost in stop.reason for stop in found.stops) is stands
    assert found.possible is (False if stands else None)


@pytest.mark.parametrize(
    ("change", "stands"),
    [
        ("", True),
        ("the job has passed it", False),
        ("its node is open", False),
        ("another node takes it", False),
        ("the job has just begun", False),
    ],
)
def test_a_volume_whose_replica_only_the_cordoned_node_takes(change: str, stands: bool) -> None:
    items = upgrade_waits_for_the_replica_of_its_node().items
    own = next(
        each for each in items if each["kind"] == "Node" and each["metadata"]["name"] == "h2"
    )
    if change == "the job has passed it":
        own["spec"]["taints"] = [{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]
    if change == "its node is open":
        del own["spec"]["unschedulable"]
    if change == "another node takes it":
        only(items, "Replica", "pvc-vms-web-r-h1")["spec"]["nodeID"] = "h9"
    if change == "the job has just begun":
        only(items, "Job", "hvst-upgrade-x-pre-drain-h2")["status"]["startTime"] = ago(minutes=9)
    time = snapshot([])["time"]
    found = rehearse(Snapshot(map(Object, items), ["*"], time=time), Options())
    waits = "waits for Longhorn volume pvc-vms-web to become healthy"
    assert any(waits in stop.reason for stop in found.stops) is stands
