"""Budgets that Longhorn keeps for the only healthy copy while it rebuilds another one."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import LONGHORN, replica, volume
from tests.forecasts.drain.test_begun_pods import node
from tests.forecasts.drain.test_operator_budgets import drained

NOW, LATE = "2027-03-01T12:00:00Z", "2027-03-01T11:58:00Z"
DAYS = "2027-02-20T08:00:00Z"


def engine(error="", mode="WO", state="in_progress", at="10.0.0.2:10000", on="a"):
    """Return an engine that rebuilds the replica at an address. That of b is the default."""
    return manifest(
        "longhorn.io/v1beta2",
        "Engine",
        "v1-e-0",
        LONGHORN,
        spec={"volumeName": "v1", "nodeID": on, "active": True},
        status={
            "currentState": "running",
            "currentReplicaAddressMap": {"v1-r-a": "10.0.0.1:10000", "v1-r-b": "10.0.0.2:10000"},
            "replicaModeMap": {"v1-r-a": "RW", "v1-r-b": mode},
            "rebuildStatus": {
                f"tcp://{at}": {
                    "isRebuilding": not error,
                    "progress": 45,
                    "state": state,
                    "error": error,
                }
            },
        },
    )


def lacking(*more, back="2027-03-01T08:00:00Z", cordoned=False, on="b", lost=LATE, silent=()):
    """Return what the drain of a meets while the second copy is not healthy.

    ``lost``: since when. ``silent``: nodes that do not report.
    """
    other = node("b", back)
    if cordoned:
        other.data["spec"]["unschedulable"] = True
    copies = [replica("v1", "a"), replica("v1", on, healthy=False), volume("v1", 2, on="a")]
    copies[-1].data["status"]["lastDegradedAt"] = lost
    objects = [*without_b(*copies, *more), other]
    for each in objects:
        if each.kind == "Node" and each.name in silent:
            unknown = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
            each.data["status"] = {**each.data["status"], **unknown}
    return drained(objects, time=NOW)


def without_b(*more):
    known = world.longhorn(*more)
    return [each for each in known if (each.kind, each.name) != ("Node", "b")]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (lacking(engine()), "and Longhorn rebuilds a copy on b (45% done)"),
        (lacking(back=LATE), "and Longhorn uses the copy on b, which has been back for only 2 min"),
    ],
    ids=["rebuilding", "just back"],
)
def test_a_copy_that_is_rebuilt_is_waited_for(found, says):
    (only,) = found["waits"]
    assert (found["drainable"], found["blockers"]) == (True, [])
    assert only["reason"].endswith(says)


@pytest.mark.parametrize(
    "found",
    [
        lacking(),
        lacking(engine(error="no route to host", state="error")),
        lacking(engine(mode="ERR")),
        lacking(engine(), cordoned=True),
        lacking(engine(), on="c"),
        lacking(engine(at="10.0.0.9:10000")),
        lacking(engine(on="c"), silent="c"),
        lacking(engine(), back=DAYS),
        lacking(back=LATE, lost=DAYS),
    ],
    ids=[
        *("nothing", "an error", "no copy is written", "cordoned", "another replica"),
        *("another address", "its node is silent", "for days", "lost before that"),
    ],
)
def test_a_copy_that_may_not_be_rebuilt_blocks(found):
    (only,) = found["blockers"]
    assert (found["drainable"], found["waits"]) == (False, [])
    assert only["remedy"].startswith("Wait until Longhorn has rebuilt a copy on another node")


ROLE = "node-role.kubernetes.io/worker"


def updated(**annotations):
    """Return what the drain of a meets while the node of the other copy is cordoned."""
    other = world.node("b", cordoned=True)
    other.data["metadata"] |= {
        "labels": {ROLE: ""},
        "annotations": {
            f"machineconfiguration.openshift.io/{key}": value for key, value in annotations.items()
        },
    }
    pool = manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        "worker",
        spec={"nodeSelector": {"matchLabels": {ROLE: ""}}, "configuration": {"name": "r-2"}},
        status={"configuration": {"name": "r-1"}},
    )
    copies = [replica("v1", "a"), replica("v1", "b"), volume("v1", 2, on="a")]
    (found,) = drained([*without_b(*copies), other, pool], time=NOW)["blockers"]
    return found["remedy"]


def test_a_node_that_is_updated_is_not_uncordoned_for_its_copies():
    states = {"currentConfig": "r-1", "desiredConfig": "r-2", "state": "Working"}
    drains = {"desiredDrain": "drain-r-2", "lastAppliedDrain": "uncordon-r-1"}
    assert updated(**states, **drains).startswith("Wait until b is back")
    done = {"desiredDrain": "uncordon-r-2", "lastAppliedDrain": "uncordon-r-2", "state": "Done"}
    assert updated(currentConfig="r-2", desiredConfig="r-2", **done) == (
        "Uncordon b: kubectl uncordon b"
    )
