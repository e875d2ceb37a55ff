"""A budget that allows nothing now: the pods that are not ready are named,
and what makes them ready.
"""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.test_pod_evictions import HEARD, budget, pod
from virt_admit.forecasts.drain import pod_evictions, typed_remedies
from virt_admit.forecasts.drain.budgets import waiting_pods
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = budget(maxUnavailable=1, allowed=0, healthy=2, desired=2, expected=3)
SPREAD = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "web"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}


def node(name, *, cordoned=False, taints=(), **labels):
    return manifest(
        "v1",
        "Node",
        name,
        metadata={
            "labels": {
                "kubernetes.io/hostname": name,
                **{key.replace("__", "/"): labels[key] for key in labels},
            }
        },
        spec={"unschedulable": cordoned, "taints": list(taints)},
        status={
            "conditions": [HEARD],
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        },
    )


def waiting(**spec):
    return pod(
        "web-2", "StatefulSet", ready="False", phase="Pending", nodeName="", affinity=SPREAD, **spec
    )


def blocker(*objects):
    found = pod_evictions.of_node(Snapshot([pod(), NOW, *objects], complete=["*"]), "a")
    (one,) = found.blockers
    assert one.now
    return one.reason, typed_remedies.of_blocker(one)


@pytest.mark.parametrize(
    ("others", "says", "command"),
    [
        (
            [pod("web-2", ready="False", nodeName="b")],
            "pod web-2 on b is not ready",
            "kubectl describe pod web-2 -n shop",
        ),
        (
            [pod("web-2", ready="False", nodeName="b"), pod("web-3", ready="False", nodeName="c")],
            "pods web-2, web-3 are not ready",
            "kubectl describe pod web-2 -n shop",
        ),
        ([waiting()], "pod web-2 finds no node", "kubectl describe pod web-2 -n shop"),
        (
            [pod("web-2", nodeName="b"), pod("web-3", phase="Succeeded", ready="False")],
            "",
            "kubectl describe pdb web",
        ),
        (
            [pod("web-2", ready="False", nodeName="b", labels={"app": "other"})],
            "",
            "kubectl describe pdb web",
        ),
    ],
    ids=["not ready", "two", "no node", "none", "of another budget"],
)
def test_the_pods_that_are_not_ready(others, says, command):
    reason, remedy = blocker(
        node("a"), node("b", taints=[{"key": "x", "effect": "NoSchedule"}]), *others
    )
    assert reason == (
        f"it allows no disruption now, so pod web-1 cannot be evicted{f': {says}' if says else ''}"
    )
    assert command in remedy


def test_a_container_that_fails_says_why():
    failing = pod("web-2", ready="False", nodeName="b")
    failing.data["status"]["containerStatuses"] = [
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ]
    reason, remedy = blocker(node("a"), failing)
    assert reason.endswith(": web-2 cannot start (CrashLoopBackOff)")
    assert remedy.endswith("kubectl logs web-2 -n shop --previous")


CRASHES = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}


def crashing(name, on, owner="ReplicaSet"):
    found = pod(name, owner, ready="False", nodeName=on)
    found.data["status"] |= CRASHES
    return found


def hosted(healthy=0, owner="HostedControlPlane", **spec):
    found = budget(maxUnavailable=1, allowed=0, healthy=healthy, desired=2, expected=3, **spec)
    above = {"apiVersion": "hypershift.openshift.io/v1beta1", "kind": owner, "name": "edu"}
    found.data["metadata"]["ownerReferences"] = [above | {"controller": True}]
    return found


PLANE = manifest(
    "hypershift.openshift.io/v1beta1",
    "HostedControlPlane",
    "edu",
    "shop",
    metadata={"annotations": {"hypershift.openshift.io/cluster": "clusters/edu"}},
)


def refused(*objects):
    (one,) = pod_evictions.of_node(Snapshot([*objects], complete=["*"]), "a").blockers
    return one.reason, typed_remedies.of_blocker(one)


def test_all_pods_of_a_hosted_control_plane_crash():
    both = crashing("web-1", "a"), crashing("web-2", "b")
    reason, remedy = refused(node("a"), node("b"), *both, hosted(), PLANE)
    assert (
        "pod web-1 cannot be evicted, although it is not ready (unhealthyPodEvictionPolicy of the "
        "budget is not set, and HostedControlPlane edu writes it): web-1, web-2 cannot start"
    ) in reason
    assert "HyperShift takes their configuration from HostedCluster clusters/edu: kubectl" in remedy
    assert "or, once a is cordoned, delete pod web-1 there: none of its replicas works" in remedy
    assert "kubectl delete pod web-1 -n shop" in remedy
    named = hosted(unhealthyPodEvictionPolicy="IfHealthyBudget")
    assert "is IfHealthyBudget, and" in refused(node("a"), node("b"), *both, named)[0]


@pytest.mark.parametrize(
    ("own", "of", "deletes", "policy"),
    [
        (crashing("web-1", "a"), hosted(healthy=1), False, True),
        (crashing("web-1", "a", "StatefulSet"), hosted(), False, True),
        (pod("web-1"), hosted(), False, False),
        (crashing("web-1", "a"), hosted(owner="WebApp"), True, True),
    ],
    ids=["one works", "with a claim", "it works itself", "of another operator"],
)
def test_when_a_pod_may_be_deleted_in_place_of_its_eviction(own, of, deletes, policy):
    reason, remedy = refused(node("a"), node("b"), own, crashing("web-2", "b"), of)
    assert ("delete pod" in remedy) is deletes
    assert ("unhealthyPodEvictionPolicy" in reason) is policy
    assert ("HostedCluster" in remedy) is (of.owned_by("WebApp") == "")


@pytest.mark.parametrize(
    ("nodes", "other"),
    [
        ([node("a", cordoned=True), node("b", cordoned=True)], "b"),
        (
            [
                node("a"),
                node("b", cordoned=True),
                node("c", taints=[{"key": "x", "effect": "NoSchedule"}]),
            ],
            "b",
        ),
        ([node("a", cordoned=True)], ""),
        ([node("a"), node("b", cordoned=True, taints=[{"key": "x", "effect": "NoSchedule"}])], ""),
        ([node("a"), node("b", cordoned=True), node("c")], ""),
    ],
    ids=[
        "both are drained",
        "the only node",
        "the node itself",
        "another taint, too",
        "it starts by itself",
    ],
)
def test_a_pod_that_waits_for_a_cordoned_node(nodes, other):
    reason, remedy = blocker(*nodes, waiting())
    if other:
        assert reason.endswith(f"pod web-2 finds no node while {other} is cordoned")
        assert remedy == (
            f"Uncordon {other}, and drain again once pod web-2 is ready: kubectl uncordon {other}"
        )
    else:
        assert "cordoned" not in reason
        assert "uncordon" not in remedy


def test_what_a_pod_waits_for_is_found_once_for_all_that_are_drained(monkeypatch):
    asked = []
    only_node = waiting_pods.only_node
    monkeypatch.setattr(
        waiting_pods, "only_node", lambda own, of: asked.append(own.name) or only_node(own, of)
    )
    nodes = [node(name, cordoned=True) for name in "abc"]
    away = [pod(f"web-{name}", nodeName=name) for name in "ab"]
    snapshot = Snapshot([NOW, *nodes, *away, waiting()], complete=["*"])
    reasons = [pod_evictions.of_node(snapshot, name).blockers[0].reason for name in "ab"]

    assert all(reason.endswith("web-2 finds no node while c is cordoned") for reason in reasons)
    assert asked == ["web-2"]


def test_a_pod_that_waits_for_a_node_in_maintenance():
    taints = [{"key": "medik8s.io/drain", "effect": "NoSchedule"}]
    away = node("b", cordoned=True, taints=taints)
    of = "nodemaintenance.medik8s.io/v1beta1"
    status = {"phase": "Succeeded"}
    order = manifest(of, "NodeMaintenance", "nm", spec={"nodeName": "b"}, status=status)
    reason, remedy = blocker(node("a", cordoned=True), away, order, waiting())

    assert reason.endswith("pod web-2 finds no node while b is cordoned by NodeMaintenance nm")
    assert remedy == (
        "Delete that NodeMaintenance when the maintenance is over, and drain again once pod web-2 "
        "is ready: kubectl delete nodemaintenance nm"
    )


@pytest.mark.parametrize(("service", "starts"), [("stop", True), ("start", False)])
def test_portworx_that_was_stopped_on_a_node(service, starts):
    stopped = pod("web-2", ready="False", nodeName="b", labels={"app": "web", "name": "portworx"})
    _, remedy = blocker(node("a"), node("b", px__service=service), stopped)
    assert ("kubectl label node b px/service=start --overwrite" in remedy) is starts


def begun(name="web-2", at="2026-01-01T11:58:00Z", **status):
    found = pod(name, ready="False", nodeName="b", metadata={"creationTimestamp": at})
    found.data["status"].update(status)
    return found


def judged(*objects, time="2026-01-01T12:00:00Z"):
    return pod_evictions.of_node(
        Snapshot([pod(), NOW, node("a"), *objects], complete=["*"], time=time), "a"
    )


def test_a_pod_that_has_just_begun_to_start_ends_the_wait():
    found = judged(node("b"), begun())
    assert found.blockers == ()
    (wait,) = found.waits
    assert wait.reason.endswith("pod web-2 on b is not ready, but was created only 2 min ago")


FAILED = {"state": {"waiting": {"reason": "ErrImagePull"}}}


@pytest.mark.parametrize(
    ("others", "time"),
    [
        ([begun(at="2026-01-01T11:50:00Z")], NOON := "2026-01-01T12:00:00Z"),
        ([begun()], None),
        ([begun(containerStatuses=[{"restartCount": 1}])], NOON),
        ([begun(containerStatuses=[FAILED])], NOON),
        ([begun(), begun("web-3", at="2026-01-01T10:00:00Z")], NOON),
    ],
    ids=[
        "too long ago",
        "the time is not known",
        "it ended once",
        "it fails",
        "another one does not start",
    ],
)
def test_a_pod_that_may_not_start_blocks(others, time):
    (blocker,) = judged(node("b"), *others, time=time).blockers
    assert blocker.now


def test_a_status_that_counts_more_pods_than_are_missing():
    stale = budget(maxUnavailable=1, allowed=0, healthy=3, desired=2, expected=3)
    found = pod_evictions.of_node(
        Snapshot([pod(), stale, node("a")], complete=["*"], time=NOON), "a"
    )
    assert len(found.blockers) == 1


def test_pods_that_start_are_too_few():
    short = budget(maxUnavailable=1, allowed=0, healthy=1, desired=2, expected=3)
    found = pod_evictions.of_node(
        Snapshot(
            [pod(), short, node("a"), node("b"), begun()],
            complete=["*"],
            time="2026-01-01T12:00:00Z",
        ),
        "a",
    )
    assert len(found.blockers) == 1
