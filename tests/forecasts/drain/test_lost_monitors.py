"""A Ceph monitor whose node no longer exists holds the budget of the others."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.test_operator_budgets import drained

HOST = "kubernetes.io/hostname"
PLACED = {
    "mon": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "mon", "operator": "In", "values": ["yes"]}]}
                ]
            }
        }
    }
}


def node(name, **labels):
    found = world.node(name)
    found.data["metadata"]["labels"] = {HOST: name, **labels}
    found.data["status"] |= {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "100"}}
    return found


def pinned(pod, on):
    """Return a monitor that waits for its node."""
    del pod.data["spec"]["nodeName"]
    pod.data["spec"]["nodeSelector"] = {HOST: on}
    pod.data["metadata"]["creationTimestamp"] = "2026-02-09T10:00:00Z"
    pod.data["status"] = {"phase": "Pending"}
    return pod


def said(*more, on="gone", now="2026-02-11T10:00:00Z", operator=True, **spec):
    a, b, c, budget = world.monitors(allowed=0)
    spec = {"placement": PLACED, **spec}
    if operator and not any("operator" in str(each.labels) for each in more):
        more = (*more, world.pod("op", "rook-ceph", {"app": "rook-ceph-operator"}, "a"))
    nodes = [node("a", mon="yes"), node("b", mon="yes"), *more]
    return drained([*nodes, a, b, pinned(c, on), budget, world.ceph(**spec)], time=now)["blockers"]


def test_the_label_that_lets_rook_replace_the_monitor():
    (found,) = said(node("d"))

    assert "pod rook-ceph-mon-c is pinned to node gone" in found["reason"]
    assert "which does not exist: it does not become ready by itself" in found["reason"]
    assert "demands mon=yes, and no node that could hold one has that" in found["reason"]
    assert found["remedy"].endswith("kubectl label node d mon=yes")


def demanding(key, *values, operator="In"):
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    "placement",
    [
        {"all": PLACED["mon"]},
        {**PLACED, "all": PLACED["mon"]},
        {**PLACED, "osd": PLACED["mon"]},
        {"mon": demanding("topology.kubernetes.io/zone", "z9")},
        {"mon": demanding("kubernetes.io/hostname", "gone")},
        {"mon": demanding("node-role.kubernetes.io/storage", operator="Exists")},
        {"mon": demanding("x.k8s.io/y", "z")},
    ],
)
def test_a_label_that_others_read_is_not_set(placement):
    (found,) = said(node("d"), placement=placement)

    assert "finds no node for another monitor" in found["reason"]
    assert found["remedy"].startswith("Let the mon placement allow a node such as d")
    assert "kubectl label" not in found["remedy"]


@pytest.mark.parametrize("placed", [demanding("mon"), demanding("mon", "yes", operator="Is")])
def test_a_faulty_affinity(placed):
    (found,) = said(node("d"), placement={"mon": placed})

    assert "has a node affinity for them that matches no node at all" in found["reason"]


def deployment(name, labels, replicas=1):
    spec = {"replicas": replicas}
    return manifest(
        "apps/v1", "Deployment", name, "rook-ceph", metadata={"labels": labels}, spec=spec
    )


def test_an_operator_that_is_stopped():
    (found,) = said(node("d"), deployment("rook-ceph-operator", {}, 0), operator=False)

    assert "no pod of its operator exists (0 replicas)" in found["reason"]
    assert "kubectl scale deployment rook-ceph-operator -n rook-ceph" in found["remedy"]


def test_monitors_that_rook_is_told_not_to_check():
    labels = {"app": "rook-ceph-mon", "mon": "b", "ceph.rook.io/do-not-reconcile": ""}
    (found,) = said(node("d"), deployment("rook-ceph-mon-b", labels))

    assert "label ceph.rook.io/do-not-reconcile (rook-ceph-mon-b)" in found["reason"]
    assert found["remedy"].endswith(
        "kubectl label deployment rook-ceph-mon-b -n rook-ceph ceph.rook.io/do-not-reconcile-"
    )


def test_no_majority_of_monitors_is_left():
    (found,) = said(node("d"), mon={"count": 5})

    assert "replaces none without a majority: 2 of 5 monitors ready" in found["reason"]
    assert "kubectl label" not in found["remedy"]


@pytest.mark.parametrize(
    ("more", "spec", "words"),
    [
        ([node("d", mon="yes")], {}, "but has not done so"),
        ([], {}, "finds no node for another monitor"),
        ([node("d")], {"placement": {}}, "but has not done so"),
        ([node("d")], {"mon": {"stretchCluster": {}}}, "but has not done so"),
        (
            [node("d")],
            {"placement": {"all": PLACED["mon"], "mon": {"nodeAffinity": {}}}},
            "but has not done so",
        ),
        (
            [node("d")],
            {"healthCheck": {"daemonHealth": {"mon": {"timeout": "0s"}}}},
            "turns the replacement of monitors off",
        ),
        (
            [
                node("d"),
                world.pod("op", "rook-ceph", {"app": "rook-ceph-operator"}, "d", ready=False),
            ],
            {},
            "its operator (pod rook-ceph/op) is not ready",
        ),
    ],
)
def test_why_rook_does_not_replace_it(more, spec, words):
    (found,) = said(*more, **spec)

    assert words in found["reason"]
    assert "kubectl label" not in found["remedy"]


@pytest.mark.parametrize(
    ("on", "now"), [("a", "2026-02-11T10:00:00Z"), ("gone", "2026-02-09T10:05:00Z")]
)
def test_a_node_that_exists_or_a_monitor_that_rook_may_be_replacing(on, now):
    (found,) = said(node("d"), on=on, now=now)

    assert "does not exist" not in found["reason"]


def test_a_pod_of_no_operator():
    labels = {"app": "db"}
    pods = [world.pod(f"db-{each}", "shop", labels, each) for each in "ab"]
    pods[1].data["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}
    ]
    budget = world.budget("db", "shop", labels, allowed=0, expected=2, maxUnavailable=1)
    budget.data["status"] = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    stateful = manifest("apps/v1", "StatefulSet", "db", "shop")
    items = [node("a"), pods[0], pinned(pods[1], "gone"), budget, stateful]
    (found,) = drained(items, time="2026-02-11T10:00:00Z")["blockers"]

    assert "pod db-b is pinned to node gone" in found["reason"]
    assert found["remedy"].endswith("kubectl describe statefulset db -n shop")
