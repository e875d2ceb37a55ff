"""Budgets of 0 that Rook keeps while Ceph recovers from an OSD that was down."""

import pytest

from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.test_begun_pods import node
from tests.forecasts.drain.test_begun_pods import starting as placed
from tests.forecasts.drain.test_operator_budgets import CEPH, OSD_BUDGET, drained, rook_without
from tests.forecasts.drain.test_rook_updates import since

NOW = "2027-03-01T12:00:00Z"
AGO = {0: "2027-03-01T11:59:40Z", 3: "2027-03-01T11:57:00Z", 12: "2027-03-01T11:48:00Z"}
HOURS = "2027-03-01T08:00:00Z"
DEGRADED = {
    "PG_DEGRADED": "Degraded data redundancy: 52/4782 objects degraded (1.087%), 17 pgs degraded"
}

MISPLACED = {"OBJECT_MISPLACED": "52/4782 objects misplaced (1.087%)"}
REBALANCES_NOT = {"OSDMAP_FLAGS": "noout,norebalance flag(s) set"}


def ceph(health="HEALTH_WARN", details=DEGRADED, checked=AGO[0]):
    found = world.ceph(health)
    found.data["status"]["ceph"] |= {
        "lastChecked": checked,
        "details": {
            code: {"severity": "HEALTH_WARN", "message": message}
            for code, message in details.items()
        },
    }
    return found


def recovering(state=None, back=AGO[3], down=(), time=NOW, written=AGO[12], unreadable=(), **more):
    """Return what the drain of a meets since the OSDs of b are up again."""
    osds = [] if down else [world.osd(2, "b"), world.osd(3, "b")]
    for each in osds:
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": back}
        each.data["status"] = {**each.data["status"], "conditions": [condition]}
    blocking = [since(world.blocking_budget(each), written) for each in "ac"]
    gone = (("Pod", "rook-ceph-osd-2"), ("Pod", "rook-ceph-osd-3"), ("Node", "b"))
    objects = rook_without(OSD_BUDGET, CEPH, *gone)
    given = [state or ceph(**more), *osds, *down, *blocking, node("b", AGO[3])]
    return drained([*objects, *given], unreadable=unreadable, time=time)


DEPLOYMENTS = "deployments.apps"


def test_an_osd_without_a_pod_may_be_down_where_deployments_cannot_be_read():
    found = recovering(unreadable=[DEPLOYMENTS])
    assert (found["drainable"], found["blockers"]) == (None, [])
    assert any(DEPLOYMENTS in what for what in found["unseen"])
    stands = recovering(health="HEALTH_ERR", unreadable=[DEPLOYMENTS])
    assert stands["drainable"] is False


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "it has been recovering for 3 min (1.087% of its objects degraded)"),
        (
            {"details": DEGRADED | {"OSD_DOWN": "1 osds down", "PG_AVAILABILITY": "3 pgs peering"}},
            "it has been recovering for 3 min (1.087% of its objects degraded)",
        ),
        ({"details": {"OSD_FLAGS": "1 OSDs have {NOOUT} flags set"}}, "for 3 min, and nothing"),
        ({"details": {"OSDMAP_FLAGS": "noout,nodeep-scrub flag(s) set"}}, "for 3 min, and"),
        ({"details": DEGRADED | REBALANCES_NOT}, "for 3 min (1.087% of its objects degraded)"),
        ({"health": "HEALTH_OK", "details": {}, "back": AGO[12]}, "for 12 min, and nothing"),
    ],
    ids=["degraded", "a moment", "noout", "flags of no recovery", "norebalance", "only misplaced"],
)
def test_a_recovery_that_goes_on_is_waited_for(more, says):
    found = recovering(**more)
    (only,) = found["waits"]
    assert (found["drainable"], found["blockers"]) == (True, [])
    assert "removes it once Ceph's data is clean" in only["reason"]
    assert says in only["reason"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"back": HOURS}, "once Ceph's data is clean"),
        ({"checked": HOURS}, "once Ceph's data is clean"),
        ({"checked": HOURS, "written": AGO[3]}, "once Ceph's data is clean"),
        ({"time": None}, "once Ceph's data is clean"),
        ({"health": "HEALTH_ERR"}, "but the health of Ceph is HEALTH_ERR"),
        (
            {"details": DEGRADED | {"OSDMAP_FLAGS": "noout,norecover flag(s) set"}},
            "but its flag norecover stops the recovery",
        ),
        (
            {"details": DEGRADED | {"OSDMAP_FLAGS": "norebalance,norecover flag(s) set"}},
            "but its flag norecover stops the recovery",
        ),
        ({"details": MISPLACED | REBALANCES_NOT}, "but its flag norebalance stops the recovery"),
        ({"details": DEGRADED | MISPLACED | REBALANCES_NOT}, "but its flag norebalance stops"),
        (
            {"details": DEGRADED | {"PG_BACKFILL_FULL": "3 pgs backfill_toofull"}},
            "but Ceph reports PG_BACKFILL_FULL: 3 pgs backfill_toofull",
        ),
        (
            {"details": DEGRADED | {"OSD_DOWN": "1 osds down"}, "back": AGO[12]},
            "but Ceph reports OSD_DOWN: 1 osds down",
        ),
        ({"details": {"OBJECT_UNFOUND": "1/9 objects unfound"}}, "but Ceph reports OBJECT_UNF"),
    ],
    ids=[
        *("hours", "old state", "old state of a young budget", "no time", "error", "flag"),
        *("second flag", "misplaced", "both", "no room", "down", "unfound"),
    ],
)
def test_a_recovery_that_may_not_go_on_blocks(more, says):
    found = recovering(**more)
    (only,) = found["blockers"]
    assert (found["drainable"], found["waits"]) == (False, [])
    assert says in only["reason"]


def osds_of_b(created, at, restarts=0):
    """Return the OSDs of b, which start there since a time."""
    found = [placed(world.osd(number, "b"), created, at, restarts) for number in (2, 3)]
    for each in found:
        each.data["metadata"]["labels"]["ceph-osd-id"] = each.name[-1]
    return found


def test_osds_that_waited_for_their_node_are_waited_for():
    found = recovering(down=osds_of_b(AGO[12], AGO[0]))
    (only,) = found["waits"]
    assert (found["drainable"], found["blockers"]) == (True, [])
    assert only["reason"].endswith("the first pod got its node only 20 s ago")
    assert recovering(down=osds_of_b(AGO[12], AGO[0], 3))["drainable"] is False


def restarting(created):
    """Return what the drain of a meets while an OSD of b starts, before Rook has seen it."""
    down = since(world.osd(2, "b", ready=False), created)
    others = rook_without(OSD_BUDGET, CEPH, ("Pod", "rook-ceph-osd-2"))
    return drained([*others, down, world.osd_budget(allowed=0), ceph()], time=NOW)


def test_an_osd_that_rook_restarts_holds_the_others_for_a_moment():
    (only,) = restarting(AGO[0])["waits"]
    assert "which has just begun to start, is up" in only["reason"]
    assert restarting(AGO[12])["drainable"] is False
