"""Budgets that Longhorn keeps for the only healthy copy while it rebuilds another one."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import LONGHORN, replica, volume
from tests.forecasts.drain.test_begun_pods import node
from tests.forecasts.drain.test_operator_budgets import drained
from tests.work import measured
from virt_admit.forecasts.drain.targets import rebuild_slots
from virt_admit.model.kubernetes.cluster import Snapshot

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


def limit(value):
    name = "concurrent-replica-rebuild-per-node-limit"
    return manifest("longhorn.io/v1beta2", "Setting", name, LONGHORN, value=value)


def new(volume_name, on, state, since="2027-03-01T11:20:00Z"):
    """Return a replica that was made then and has never been healthy."""
    found = replica(volume_name, on, healthy=False)
    found.data["metadata"]["creationTimestamp"] = since
    found.data["status"]["currentState"] = state
    return found


def taken(volume_name, *on):
    """Return an engine that has taken the replicas of its volume on these nodes."""
    return manifest(
        "longhorn.io/v1beta2",
        "Engine",
        f"{volume_name}-e-0",
        LONGHORN,
        spec={
            "volumeName": volume_name,
            "replicaAddressMap": {f"{volume_name}-r-{each}": "10.0.0.1:10000" for each in on},
        },
    )


def in_a_circle(value="1", *, engines=None, since="2027-03-01T11:20:00Z", healthy=True, end="b"):
    """Return what the drain of a meets while the new replicas of v1 and v2 hold the slots of b and
    c.

    ``engines``: besides that of v1. ``healthy``: whether v2 has data. ``end``: the node for whose
    slot v2 waits.
    """
    others = [taken("v2", "a")] if engines is None else engines
    copies = [
        *(replica("v1", "a"), new("v1", "b", "running", since), new("v1", "c", "stopped", since)),
        *(replica("v2", "a", healthy=healthy), new("v2", "c", "running", since)),
        *([new("v2", end, "stopped", since)] if end else []),
        *(volume("v1", 3, on="a"), volume("v2", 3, on="a")),
    ]
    objects = world.longhorn(*copies, limit(value), taken("v1", "a"), *others)
    (found,) = drained(objects, time=NOW)["blockers"]
    return found


def test_replicas_that_hold_the_slots_of_one_another_are_named_with_the_limit():
    found = in_a_circle()
    assert (
        "no rebuilding begins, as new replicas hold the slots of one another for 40 min"
        in (found["reason"])
    )
    assert "v2-r-c that of c, for which v1-r-c waits" in found["reason"]
    assert "v1-r-b that of b, for which v2-r-b waits" in found["reason"]
    assert found["remedy"].startswith("Set concurrent-replica-rebuild-per-node-limit to 2: kubectl")
    assert "; set it back to 1 once they are rebuilt" in found["remedy"]


def chained(number, *, closed):
    """Yield volumes of which each holds the slot for which the one before it waits."""
    for each in range(number):
        yield replica(f"v{each}", "a")
        yield new(f"v{each}", f"n{each}", "running")
        if closed or each < number - 1:
            yield new(f"v{each}", f"n{(each + 1) % number}", "stopped")


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        (chained(2000, closed=False), "replica v0-r-n1 waits for a rebuild slot of n1"),
        (chained(2000, closed=True), "no rebuilding begins"),
    ],
    ids=["a chain", "a circle"],
)
def test_many_volumes_are_compared_in_time(objects, says):
    cluster = Snapshot([*objects, limit("1")], complete=["*"], time=NOW)
    every = [volume(f"v{each}", 3, on="a") for each in range(1999)]
    with measured() as work:
        found = [rebuild_slots.waits([each], cluster) for each in every]
    assert found[0].why.startswith(says)
    assert all(found)
    assert work.seconds < 2


def test_many_slots_are_given_as_a_decision():
    lone = [new("v0", "b", "running"), *(new(f"v{each}", "b", "stopped") for each in range(12))]
    objects = [*lone, *(replica(f"v{each}", "a") for each in range(12)), limit("1")]
    for each, found in enumerate(objects):
        found.data["metadata"]["name"] += "" if found.kind == "Setting" else f"-{each}"
    cluster = Snapshot(objects, complete=["*"], time=NOW)
    found = rebuild_slots.waits([volume("v0", 3, on="a")], cluster)
    assert found.remedy.startswith("as a decision, set concurrent-replica-rebuild-per-node-limit")


@pytest.mark.parametrize(
    "found",
    [
        in_a_circle("2"),
        in_a_circle("5"),
        in_a_circle("many"),
        in_a_circle(since="2027-03-01T11:59:00Z"),
        in_a_circle(healthy=False),
    ],
    ids=["2", "5", "not a number", "just made", "the first replicas of a volume"],
)
def test_slots_that_are_free_are_not_waited_for(found):
    assert "slot" not in found["reason"]
    assert found["remedy"].startswith("Wait until Longhorn has rebuilt")


@pytest.mark.parametrize(
    "found",
    [in_a_circle(engines=[taken("v2", "a", "c")]), in_a_circle(end="")],
    ids=["its rebuilding has begun", "it waits for nothing"],
)
def test_a_slot_that_becomes_free_is_waited_for(found):
    assert "replica v1-r-c waits for a rebuild slot of c, which v2-r-c holds" in found["reason"]
    assert found["remedy"].startswith("Wait until Longhorn has rebuilt")


def test_a_limit_of_none_is_raised():
    found = in_a_circle("0")
    assert (
        "concurrent-replica-rebuild-per-node-limit 0 lets Longhorn rebuild none"
        in (found["reason"])
    )
    assert "-per-node-limit to 5" in found["remedy"]


def test_a_volume_of_which_no_node_takes_a_copy_says_why():
    own = volume("v1", 2, on="a")
    own.data["status"] |= {
        "state": "attached",
        "robustness": "degraded",
        "conditions": [{"type": "Scheduled", "status": "False", "message": "insufficient storage"}],
    }
    objects = world.longhorn(replica("v1", "a"), own)
    (found,) = drained(objects, time=NOW)["blockers"]
    assert "no node takes the last of its 2 replicas" in found["reason"]
    assert not found["remedy"].startswith("Wait until")


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
