"""Budgets of 0 that Rook writes while it updates its OSDs one after the other."""

import pytest

from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.test_operator_budgets import CEPH, OSD_BUDGET, drained, rook_without
from virt_admit.model.kubernetes.objects import Object

NOW = "2027-03-01T12:00:00Z"
YOUNG, OLD, PASSED = "2027-03-01T11:59:40Z", "2027-03-01T11:53:00Z", "2027-03-01T08:00:00Z"


def since(obj: Object, created: str) -> Object:
    obj.data["metadata"]["creationTimestamp"] = created
    return obj


def starting(number: int, on: str, created: str = YOUNG, restarts: int = 0) -> Object:
    found = since(world.osd(number, on, ready=False), created)
    found.data["metadata"]["labels"]["ceph-osd-id"] = str(number)
    found.data["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": created}],
        "containerStatuses": [{"name": "osd", "restartCount": restarts}],
    }
    return found


def updating(
    *down: Object,
    written: str = YOUNG,
    phase: str = "Ready",
    lost: bool = False,
    unreadable: tuple[str, ...] = (),
):
    """Return what the drain of a meets while these OSDs are down."""
    ceph = world.ceph("HEALTH_ERR" if lost else "HEALTH_WARN")
    ceph.data["status"]["phase"] = phase
    ceph.data["status"]["ceph"]["lastChecked"] = YOUNG
    code = "PG_AVAILABILITY" if lost else "PG_DEGRADED"
    ceph.data["status"]["ceph"]["details"] = {code: {"severity": "HEALTH_WARN", "message": "x"}}
    blocking = [since(world.blocking_budget(each), written) for each in "ac"]
    objects = rook_without(OSD_BUDGET, CEPH, *(("Pod", each.name) for each in down))
    return drained([*objects, ceph, *down, *blocking], unreadable=unreadable, time=NOW)


@pytest.mark.parametrize(
    "more",
    [{}, {"written": PASSED, "phase": "Progressing"}],
    ids=["budgets just written", "Rook goes through its OSDs"],
)
def test_an_osd_that_starts_is_waited_for(more):
    found = updating(starting(2, "b"), **more)

    (only,) = found["waits"]
    assert (found["drainable"], found["blockers"]) == (True, [])
    assert only["reason"] == (
        "Rook removes it once OSD 2 on b is up and data is clean: its pod was created only 20 s ago"
    )


def test_another_osd_may_be_down_where_deployments_cannot_be_read():
    unread = ("deployments.apps",)
    assert updating(starting(2, "b"), unreadable=unread)["drainable"] is None
    assert updating(starting(2, "b", OLD), unreadable=unread)["drainable"] is False


def test_data_is_not_clean_yet():
    (only,) = updating()["waits"]
    assert only["reason"].endswith("which are up again, and removes it once Ceph's data is clean")


@pytest.mark.parametrize(
    ("down", "more", "says"),
    [
        ([starting(2, "b", OLD)], {}, "OSD 2 on b is down although the node is up"),
        ([starting(2, "b", restarts=2)], {}, "OSD 2 on b is down although the node is up"),
        ([starting(2, "b")], {"written": PASSED}, "OSD 2 on b is down although the node is up"),
        ([starting(2, "b")], {"lost": True}, "OSD 2 on b is down although the node is up"),
        ([starting(2, "b"), starting(4, "c", OLD)], {}, "OSD 2 on b is down although the node"),
        ([], {"written": PASSED}, "and removes it once Ceph's data is clean"),
    ],
    ids=["minutes", "restarts", "older budgets", "lost data", "another OSD", "not clean for long"],
)
def test_an_osd_that_may_not_come_back_blocks(down, more, says):
    found = updating(*down, **more)

    (only,) = found["blockers"]
    assert (found["drainable"], found["waits"]) == (False, [])
    assert says in only["reason"]


def test_young_budgets_are_no_wait_before_the_state_of_ceph_was_seen():
    """Rook makes them again whenever an OSD goes down."""
    blocking = [since(world.blocking_budget(each), YOUNG) for each in "ac"]
    without = rook_without(OSD_BUDGET, CEPH)
    for down in ([], [starting(2, "b")]):
        objects = [each for each in without if each.name not in {osd.name for osd in down}]
        found = drained([*objects, *down, *blocking], time=NOW)
        assert (found["drainable"], found["waits"]) == (False, [])


def test_young_budgets_are_not_judged_by_a_state_that_cannot_be_read():
    blocking = [since(world.blocking_budget(each), YOUNG) for each in "ac"]
    unread = ["cephclusters.ceph.rook.io"]
    found = drained([*rook_without(OSD_BUDGET, CEPH), *blocking], unreadable=unread, time=NOW)
    assert (found["drainable"], found["waits"]) == (None, [])
