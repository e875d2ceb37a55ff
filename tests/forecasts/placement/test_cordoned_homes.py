"""A pod that no cordon should keep from its only node, such as the controller that would uncordon
it."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, LONG_AGO = "2026-11-28T12:00:00Z", "2026-11-28T11:20:00Z"
MESSAGE = "0/3 nodes are available: 1 node(s) were unschedulable."
USUAL = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
SERVER = {"node-role.kubernetes.io/control-plane": "true"}


def node(name, labels=None, cordoned=False, **spec):
    spec |= {"unschedulable": True} if cordoned else {}
    return manifest("v1", "Node", name, metadata={"labels": labels or {}}, spec=spec)


def waiting(since=LONG_AGO, **spec):
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    placed |= {"message": MESSAGE, "lastTransitionTime": since}
    owner = {"kind": "ReplicaSet", "name": "roller-5f", "controller": True}
    return manifest(
        "v1",
        "Pod",
        "roller-5f-x",
        "system",
        metadata={"ownerReferences": [owner]},
        spec={"nodeSelector": SERVER, "tolerations": USUAL, **spec},
        status={"phase": "Pending", "conditions": [placed]},
    )


def words(pod, *nodes, complete=("*",)):
    found = stopped_workloads.of_one("roller", Snapshot([pod, *nodes], complete, time=NOW))
    return (found.words, found.remedy) if found is not None else ("", "")


def test_the_only_node_of_a_controller_is_cordoned():
    said, remedy = words(waiting(), node("s1", SERVER, cordoned=True), node("w1"))

    assert said == (
        "pod roller-5f-x is not ready for 40 min: it has no node: the only node that may run it, "
        "s1, is cordoned"
    )
    assert remedy.startswith("Uncordon s1, unless an administrator works on it")
    assert remedy.endswith("kubectl uncordon s1")


TAINT = [{"key": "reserved", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("s1", SERVER)], "unschedulable"),  # it lacks room
        ([node("s1", SERVER, cordoned=True), node("s2", SERVER)], "unschedulable"),
        ([node("s1", SERVER, cordoned=True, taints=TAINT)], "unschedulable"),
        ([node("w1")], "demands label node-role.kubernetes.io/control-plane=true"),
        (
            [node("s1", SERVER, cordoned=True), node("s2", SERVER, cordoned=True)],
            "the only nodes that may run it, s1, s2, are all cordoned",
        ),
    ],
)
def test_other_nodes_decide(nodes, why):
    assert why in words(waiting(), *nodes)[0]


@pytest.mark.parametrize(
    "changed",
    [{"message": "0/1 nodes are available: 1 Insufficient memory."}, {"reason": "SchedulingGated"}],
)
def test_what_the_scheduler_says_comes_first(changed):
    pod = waiting()
    pod.data["status"]["conditions"][0] |= changed

    assert "cordoned" not in words(pod, node("s1", SERVER, cordoned=True))[0]


def test_nodes_that_were_not_read_are_not_missed():
    pod, seen = waiting(), node("s1", SERVER, cordoned=True)

    assert "unschedulable" in words(pod, seen, complete=("pods",))[0]


def test_tolerations_that_were_not_read_may_admit_other_nodes():
    pod, tainted = waiting(tolerations=[]), node("s2", SERVER, taints=TAINT)

    assert "unschedulable" in words(pod, node("s1", SERVER, cordoned=True), tainted)[0]


def test_a_pod_that_was_just_made_is_no_fault():
    cluster = Snapshot([waiting(since=NOW), node("s1", SERVER)], ["*"], time=NOW)

    assert stopped_workloads.of_one("roller", cluster) is None
    assert broken_pods.why(next(iter(cluster.known(broken_pods.POD))), cluster)
