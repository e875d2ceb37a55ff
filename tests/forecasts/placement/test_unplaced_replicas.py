"""Why no node takes a further replica of a volume of Longhorn."""

import pytest

from tests import builders
from tests.builders import manifest
from virt_admit.forecasts.placement.components.longhorn import unplaced_replicas
from virt_admit.forecasts.upgrade import harvester_waits
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase, PoolUpdate

SPACE = "longhorn-system"
FULL = "precheck new replica failed: insufficient storage"


def longhorn(kind, name, **rest):
    return manifest("longhorn.io/v1beta2", kind, name, SPACE, **rest)


def volume(name="pvc-1", message="", **spec):
    said = {"type": "Scheduled", "status": "False", "message": message}
    status = {"state": "attached", "robustness": "degraded", "conditions": [said]}
    return longhorn("Volume", name, spec={"numberOfReplicas": 2, **spec}, status=status)


def node(name, *, closed=False, **disk):
    return longhorn("Node", name, spec={"allowScheduling": not closed, "disks": {"d": disk}})


def replica(of, on):
    spec = {"volumeName": of, "nodeID": on, "healthyAt": "2027-01-01T10:00:00Z"}
    return longhorn("Replica", f"{of}-{on}", spec=spec, status={"currentState": "running"})


def found(asked, *objects):
    items = [replica("pvc-1", "a"), node("a"), *objects]
    return unplaced_replicas.of(asked, Snapshot(items, complete=["*"]))


def test_a_node_that_may_take_it_is_the_cause_and_no_closed_one():
    shared = longhorn("Setting", "replica-soft-anti-affinity", value="true")
    assert "as b takes none" in found(volume(message=FULL), node("b", closed=True)).why
    held = found(volume(message=FULL), node("b", closed=True), shared)
    assert held.why == (
        "no node takes the last of its 2 replicas (Longhorn says insufficient storage)"
    )
    assert held.remedy.startswith("make room on the disks of a, or give Longhorn")


@pytest.mark.parametrize(
    "message",
    ["", "precheck new replica failed: ", "replica scheduling failed"],
    ids=["none", "empty", "no candidate"],
)
def test_words_without_a_reason_are_not_quoted(message):
    held = found(volume(message=message))
    assert held.why == "no node takes the last of its 2 replicas, as only a stores replicas"


@pytest.mark.parametrize(
    ("asked", "disk"),
    [(volume(diskSelector=["fast"]), {}), (volume(dataEngine="v2"), {"diskType": "filesystem"})],
    ids=["tags", "engine"],
)
def test_a_closed_node_whose_disk_does_not_suit_is_not_opened(asked, disk):
    assert "b takes none" in found(volume(), node("b", closed=True, **disk)).why
    assert "allowScheduling" not in found(asked, node("b", closed=True, **disk)).remedy


def test_the_nodes_are_judged_once_for_all_volumes(monkeypatch):
    judged, own = [], unplaced_replicas._of_disk
    monkeypatch.setattr(
        unplaced_replicas, "_of_disk", lambda *which: judged.append(which) or own(*which)
    )
    volumes = [volume(f"pvc-{each}") for each in range(9)]
    cluster = Snapshot([node("b", closed=True), *volumes], complete=["*"])
    assert all(unplaced_replicas.of(each, cluster) for each in volumes)
    assert len(judged) == 1


@pytest.mark.parametrize(("updated", "held"), [("b", False), ("a", True)])
def test_a_node_that_is_cordoned_for_its_own_update_holds_no_upgrade(updated, held):
    said = {"type": "Schedulable", "status": "False", "reason": "KubernetesNodeCordoned"}
    cordoned = longhorn("Node", "b", spec={"disks": {"d": {}}}, status={"conditions": [said]})
    harvester = [builders.node(each, {"harvesterhci.io/managed": "true"}) for each in "abc"]
    begun = [PoolUpdate("Upgrade", "u", {updated: NodeUpdate("Upgrade", "u", Phase.DRAINING)})]
    cluster = Snapshot([*harvester, volume(), cordoned], complete=["*"])
    assert any(harvester_waits.obstacles(begun, cluster)) is held
