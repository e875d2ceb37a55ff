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


ALONE = {"f:spec": {"f:taints": {}}}
WITH_LABELS = {**ALONE, "f:metadata": {"f:labels": {}}}


def untainted(plan, manager="harvester", minutes=51, active=1, owned=ALONE):
    """Return the rehearsal of an upgrade whose node has not the taint of its drain."""
    items = upgrade_without_the_drain_taint().items
    written = {"manager": manager, "time": ago(minutes=minutes), "fieldsV1": owned}
    earlier = {**written, "manager": "kubelet", "time": ago(days=9)}
    only(items, "Node", "h2")["metadata"]["managedFields"] = [written, earlier]
    name = "hvst-upgrade-x"
    if plan:
        states = {"h1": {"state": "ImageCleaned"}, "h2": {"state": "PreDraining"}}
        status = {"currentPhase": "NodeUpgrading", "nodeUpgradeStatuses": states}
        items = [each for each in items if each["kind"] != "Upgrade"]
        kind = ("UpgradePlan", "management.harvesterhci.io/v1beta1", name)
        metadata = {"creationTimestamp": ago(hours=3)}
        items.append(obj(*kind, metadata=metadata) | {"status": status})
    labels = {PLAN if plan else "harvesterhci.io/upgrade": name, "harvesterhci.io/node": "h2"}
    kind = ("Job", "batch/v1", f"{name}-pre-drain-h2", "harvester-system")
    job = obj(*kind, metadata={"labels": labels})
    job["status"] = {"active": active, "startTime": ago(minutes=52)}
    time = snapshot([])["time"]
    return rehearse(Snapshot(map(Object, [*items, job]), ["*"], time=time), Options())


@pytest.mark.parametrize(
    ("changed", "plan", "possible", "says"),
    [
        ({}, True, False, "its taints were written last by manager harvester"),
        ({}, False, None, "may have taken that taint away"),
        ({"owned": WITH_LABELS}, True, None, "may have taken that taint away"),
        ({"manager": "kubectl-taint"}, True, None, ""),
        ({"minutes": 3}, True, None, ""),
        ({"minutes": 90}, True, None, ""),
        ({"active": 0}, True, None, ""),
    ],
    ids=[
        "it wrote the taints",
        "an Upgrade, of which it knows",
        "it may have written a label",
        "another one wrote them",
        "just now",
        "before the drain",
        "no Job runs",
    ],
)
def test_the_taint_that_harvester_takes_away(changed, plan, possible, says) -> None:
    found = untainted(plan, **changed)

    lost = "waits for vms/web to leave, which nothing asks to: the node has no taint kubevirt.io/"
    assert any(lost in stop.reason for stop in found.stops) is (possible is False)
    assert found.possible is possible
    said = [*(stop.reason for stop in found.stops), *found.unseen]
    assert any(says in each for each in said)
    assert says or not any("manager harvester" in each for each in said)


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
