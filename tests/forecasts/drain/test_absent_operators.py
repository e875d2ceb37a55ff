"""Budgets whose operator would make way for a drain, and is down."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import pod
from tests.forecasts.drain.test_operator_budgets import COPIES, drained
from virt_admit.forecasts.drain.budgets import absent_operators
from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, Way
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen

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


def operator(replicas, space="rook-ceph"):
    return manifest("apps/v1", "Deployment", "rook-ceph-operator", space, spec=replicas)


def test_an_operator_that_is_scaled_to_0_makes_no_way():
    (only,) = drained([*world.rook(), operator({"replicas": 0})], time=NOW)["blockers"]
    assert only["reason"] == (
        "Rook does not make way, as Deployment rook-ceph/rook-ceph-operator is scaled to 0"
    )
    assert only["remedy"] == (
        "Once what it was stopped for is done, scale it up again: "
        "kubectl scale deployment rook-ceph-operator -n rook-ceph --replicas=1"
    )


@pytest.mark.parametrize(
    "objects",
    [
        [operator({})],
        [operator({"replicas": 0}), operator({"replicas": 1}, "rook-2")],
        [operator({"replicas": 0}), pod("rook-ceph-operator-5f7d", "rook-ceph", {}, "b")],
        [operator({"replicas": "0"})],
    ],
    ids=["one", "another", "still-there", "odd"],
)
def test_an_operator_that_is_not_scaled_to_0_makes_way(objects):
    assert drained([*world.rook(), *objects], time=NOW)["blockers"] == []


def test_an_operator_that_may_be_scaled_to_0_unseen_leaves_it_open():
    waits = OperatorAnswer(Way.WAITS, "Rook makes way")
    ours = pod("rook-ceph-operator-5f7d", "rook-ceph", {}, "b")
    for known in ([ours], [operator({"replicas": 1})]):
        cluster = Snapshot(known, complete=["*"], unreadable=["deployments.apps"])
        assert absent_operators.held("Rook", waits, cluster) == waits
    cluster = Snapshot([], complete=["*"], unreadable=["deployments.apps"])
    with pytest.raises(Unseen, match=r"deployments\.apps"):
        absent_operators.held("Rook", waits, cluster)
