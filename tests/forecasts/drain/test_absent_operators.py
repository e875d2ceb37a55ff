"""Budgets whose operator would make way for a drain, and is down."""

import pytest

from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import pod
from tests.forecasts.drain.test_operator_budgets import COPIES, drained

NOW = "2026-11-26T12:00:00Z"


def crashing(name, owner="ReplicaSet", since="11:00"):
    """Return a pod of an operator that is not ready."""
    found = pod(name, "rook-ceph", {}, "c", ready=False, owner=owner)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": f"2026-11-26T{since}:00Z"}
    found.data["status"] = {"phase": "Running", "conditions": [ready]}
    return found


@pytest.mark.parametrize(
    ("objects", "down", "name"),
    [
        (world.rook(), crashing("rook-ceph-operator-5f7d"), "Rook"),
        (world.longhorn(*COPIES), crashing("longhorn-manager", owner="DaemonSet"), "Longhorn"),
    ],
)
def test_an_operator_that_is_down_makes_no_way(objects, down, name):
    (only,) = drained([*objects, down], time=NOW)["blockers"]
    assert only["reason"] == f"{name} does not make way, as pod {down.name} is not ready for 60 min"
    assert only["remedy"].startswith("Repair ") or "kubectl describe pod" in only["remedy"]


@pytest.mark.parametrize(
    "pods",
    [
        [crashing("rook-ceph-operator-5f7d", since="11:58")],
        [crashing("rook-ceph-operator-5f7d"), pod("rook-ceph-operator-8c1b", "rook-ceph", {}, "b")],
        [crashing("strimzi-cluster-operator-5f7d")],
    ],
    ids=["young", "another-runs", "other-operator"],
)
def test_an_operator_that_may_work_makes_way(pods):
    assert drained([*world.rook(), *pods], time=NOW)["blockers"] == []
