"""A node that the machine config operator drains and that was uncordoned meanwhile."""

import pytest

from tests.builders import kubevirt, manifest, node
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates import config_pool_updates
from virt_admit.reports.drain import text

GROUP = "machineconfiguration.openshift.io"
BEGAN, CORDONED, NOW = "2027-03-01T09:00:00Z", "2027-03-01T10:00:00Z", "2027-03-01T12:00:00Z"


def drained(*, cordoned=False, desired="drain-new", applied="uncordon-old"):
    found = node("a")
    found.data["metadata"]["labels"] |= {"node-role.kubernetes.io/worker": ""}
    found.data["metadata"]["annotations"] = {
        f"{GROUP}/currentConfig": "old",
        f"{GROUP}/desiredConfig": "new",
        f"{GROUP}/state": "Working",
        f"{GROUP}/desiredDrain": desired,
        f"{GROUP}/lastAppliedDrain": applied,
    }
    found.data["spec"] = {"unschedulable": cordoned}
    return found


def uncordoned(time="2027-03-01T11:00:00Z"):
    return manifest(
        *("v1", "Event", "a.1", "default"),
        involvedObject={"kind": "Node", "name": "a"},
        reason="NodeSchedulable",
        lastTimestamp=time,
    )


def report(status):
    conditions = [{"type": "Cordoned", "status": status, "lastTransitionTime": CORDONED}]
    return manifest(f"{GROUP}/v1", "MachineConfigNode", "a", status={"conditions": conditions})


def version(release):
    status = {"desired": {"version": release}}
    return manifest("config.openshift.io/v1", "ClusterVersion", "version", status=status)


def cluster(*objects):
    updating = [{"type": "Updating", "status": "True", "lastTransitionTime": BEGAN}]
    selector = {"matchLabels": {"node-role.kubernetes.io/worker": ""}}
    pool = manifest(
        *(f"{GROUP}/v1", "MachineConfigPool", "worker"),
        spec={"nodeSelector": selector, "configuration": {"name": "new"}},
        status={"conditions": updating, "machineCount": 1},
    )
    return Snapshot([pool, kubevirt(), *objects], complete=["*"], time=NOW)


@pytest.mark.parametrize(
    ("release", "again"), [("4.17.30", False), ("4.20.1", False), ("4.21.0", True), (None, False)]
)
def test_a_node_that_was_uncordoned_during_its_drain(release, again):
    known = [version(release)] if release else []
    there = cluster(drained(), uncordoned(), report("True"), *known)
    found = config_pool_updates.open_drains(there)["a"]
    assert found.again is again
    assert f"({GROUP}/desiredDrain drain-new is not applied)" in found.why
    assert "it was uncordoned 60 min ago (Event NodeSchedulable)" in found.why
    assert found.note.endswith(": kubectl cordon a")
    plan = drain_plan.plan(there, "a")
    assert found.note in "".join(plan.nodes[0].notes)
    assert "But that of its MachineConfigPool may not: see the note." in text.text(plan, None)
    result = rehearse(there, Options())
    doubts = [each for each in result.unseen if "whether the drain of a ends" in each]
    assert bool(doubts) is not again


@pytest.mark.parametrize(
    "objects",
    [
        [drained(cordoned=True), uncordoned()],
        [drained(applied="drain-new"), uncordoned()],
        [drained(desired="uncordon-new", applied="drain-new"), uncordoned()],
        [drained(), uncordoned("2027-03-01T08:00:00Z")],
        [drained(), uncordoned("2027-03-01T11:59:30Z")],
        [drained(), uncordoned(), report("False")],
        [drained()],
    ],
    ids=[
        *("it is cordoned", "its drain has ended", "it is to be uncordoned", "of an earlier one"),
        *("it has just begun", "it is still to be cordoned", "no Event"),
    ],
)
def test_drains_that_go_on_as_usual(objects):
    assert not config_pool_updates.open_drains(cluster(*objects))
