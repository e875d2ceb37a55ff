"""A node that reports again while the taint of its fencing is left: it is named,
and no node is bought for it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.forecasts.repair.broken_clusters import ROOM, cluster, kubevirt, node, vm
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.placement import no_target
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import fence_taints

NOW = "2027-03-01T11:00:00Z"
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}
REMEDIATION = {
    "key": "medik8s.io/remediation",
    "value": "self-node-remediation",
    "effect": "NoExecute",
}
SMALL = {**ROOM, "memory": "5Gi"}


def back(
    since: str = "2027-03-01T06:12:00Z", *taints: dict[str, str], ready: str = "True"
) -> Object:
    """Return the node ``b``, which was remediated and reports again."""
    found = node("b", taints=list(taints or (OUT_OF_SERVICE, REMEDIATION)))
    found.data["status"]["conditions"] = [
        {"type": "Ready", "status": ready, "lastTransitionTime": since}
    ]
    return found


def stale() -> Object:
    metadata = {
        "name": "old",
        "namespace": "shop",
        "deletionTimestamp": "2027-03-01T06:05:00Z",
        "finalizers": ["x/y"],
    }
    return Object(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "b"}}
    )


def seen(*objects: Object) -> Snapshot:
    """Return a cluster whose VM on ``a`` finds room on ``b`` alone."""
    full = [
        node("a", room={**ROOM, "memory": "9Gi"}),
        node("c", room=SMALL),
        vm("full", on="c"),
        vm(on="a"),
    ]
    found = cluster(*full, *objects, kubevirt(), nodes=())
    found.time = NOW
    return found


def test_the_vm_names_the_node_that_its_remediation_keeps() -> None:
    (found,) = drain_plan.plan(seen(back(), stale()), "a").nodes
    (row,) = found.forecasts

    assert row.outcome is VmOutcome.BLOCKS
    taints = "taints node.kubernetes.io/out-of-service, medik8s.io/remediation of its fencing"
    assert f"b has reported for 4 h 48, and still has {taints}" in row.reason
    assert row.remedy == (
        "let pod shop/old end, after which the remediator of b removes the taint: kubectl "
        "describe pod old -n shop"
    )


def by_hand(*objects: Object, complete: tuple[str, ...] = ("*",)) -> Snapshot:
    """Return a cluster in which an administrator has set the taint out-of-service,
    while an old pod is still there.
    """
    found = seen(back("2027-03-01T06:12:00Z", OUT_OF_SERVICE), stale(), *objects)
    again = Snapshot(list(found), complete=complete)
    again.time = NOW
    return again


UNTAINT = "kubectl taint nodes b node.kubernetes.io/out-of-service:NoExecute-"


def test_the_taint_of_an_administrator_waits_for_no_remediator() -> None:
    (row,) = drain_plan.plan(by_hand(), "a").nodes[0].forecasts

    assert row.remedy == f"as the administrator who set it has to, remove its taint: {UNTAINT}"
    assert "remediator" not in row.reason
    assert not fence_taints.stays("b", by_hand())
    (step,) = repair(by_hand(), Goal.DRAIN, ["a"]).steps
    assert (step.title, step.changes[0].text) == ("remove the taint of the fencing", row.remedy)


@pytest.mark.parametrize(
    "names", [{"name": "b"}, {"name": "b-x", "annotations": {fence_taints.NODE_NAME: "b"}}]
)
def test_a_remediation_of_the_node_removes_its_taint(names: dict[str, Any]) -> None:
    remediation = {
        "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
        "kind": "SelfNodeRemediation",
    }
    found = by_hand(Object({**remediation, "metadata": {**names, "namespace": "medik8s"}}))

    assert fence_taints.is_by_hand("b", found) is False
    assert fence_taints.waits_for("b", found) == "pod shop/old"


FENCE_AGENTS = {"key": "remediation.medik8s.io/fence-agents-remediation", "effect": "NoSchedule"}
DELETED = {"deletionTimestamp": "2027-03-01T06:20:00Z", "finalizers": ["x/y"]}


def fences(strategy: str, **metadata: Any) -> Object:
    version, metadata = (
        "fence-agents-remediation.medik8s.io/v1alpha1",
        {"name": "b", "namespace": "ops"} | metadata,
    )
    spec = {"remediationStrategy": strategy}
    return Object(
        {
            "apiVersion": version,
            "kind": "FenceAgentsRemediation",
            "metadata": metadata,
            "spec": spec,
        }
    )


@pytest.mark.parametrize(
    ("taints", "objects", "words", "command"),
    [
        (
            (FENCE_AGENTS,),
            (fences("ResourceDeletion"),),
            "see that b is healthy, then delete Fence",
            "kubectl delete f",
        ),
        (
            (OUT_OF_SERVICE, FENCE_AGENTS),
            (fences("OutOfServiceTaint"),),
            "see that b is healthy",
            "kubectl delete f",
        ),
        (
            (OUT_OF_SERVICE, FENCE_AGENTS),
            (fences("ResourceDeletion"),),
            "see that the remediation of b",
            "kubectl taint",
        ),
        (
            (FENCE_AGENTS,),
            (fences("ResourceDeletion", **DELETED),),
            "let the operator of Fence",
            "kubectl describe f",
        ),
        (
            (FENCE_AGENTS,),
            (),
            "see that the remediation of b has ended",
            f"kubectl taint nodes b {FENCE_AGENTS['key']}",
        ),
        (
            (OUT_OF_SERVICE,),
            (fences("OutOfServiceTaint"),),
            "see that b is healthy",
            "kubectl delete f",
        ),
    ],
    ids=[
        "its own",
        "both",
        "one by hand",
        "being deleted",
        "its object is gone",
        "only that for its pods",
    ],
)
def test_fence_agents_wait_for_nothing(
    taints: tuple[dict[str, str], ...], objects: tuple[Object, ...], words: str, command: str
) -> None:
    found = seen(back("2027-03-01T06:12:00Z", *taints), stale(), *objects)
    left = fence_taints.known(found)["b"]

    assert not fence_taints.waits_for("b", found)
    said = fence_taints.way_out("b", left, found)
    assert said[0].startswith(words)
    assert said[1].startswith(command)
    assert left.effect == ("ends every pod" if OUT_OF_SERVICE in taints else "keeps new pods off")


@pytest.mark.parametrize(
    ("taint", "fenced"),
    [
        (FENCE_AGENTS, True),
        ({"key": "remediation.medik8s.io/self-node-remediation", "effect": "NoSchedule"}, True),
        ({"key": "medik8s.io/drain", "effect": "NoSchedule"}, False),
        (
            {"key": "remediation.medik8s.io/self-node-remediation", "effect": "PreferNoSchedule"},
            False,
        ),
    ],
    ids=["fence agents", "self node", "maintenance", "no pod is kept off"],
)
def test_later_releases_only_keep_new_pods_off(taint: dict[str, str], fenced: bool) -> None:
    assert ("b" in fence_taints.known(seen(back("2027-03-01T06:12:00Z", taint)))) is fenced


def test_a_remediation_that_cannot_be_listed_may_exist() -> None:
    found = by_hand(complete=("nodes", "pods"))

    assert fence_taints.is_by_hand("b", found) is None
    words, _ = fence_taints.way_out("b", fence_taints.known(found)["b"], found)
    assert words.startswith("see that no remediation of b is under way, then remove its taint")


def test_the_node_itself_says_it() -> None:
    for name in ("a", "b", "c"):
        notes = drain_plan.node_plan(name, seen(back(), stale())).notes
        assert any(
            "so that no VM can run on it. Let pod shop/old end" in each for each in notes
        ) is (name == "b")


def test_an_outage_names_the_room_behind_the_taint() -> None:
    found = outages(Question(nodes=("a",)), seen(back()))

    assert found.survives is False
    assert any("b has reported for 4 h 48" in why for why in found.because)


def test_no_node_is_added_and_no_guest_is_stopped_for_it() -> None:
    plan = repair(seen(back(), stale()), Goal.DRAIN, ["a"])
    (step,) = plan.steps

    assert (plan.reaches, step.id, step.alternatives) == (True, "remediated:b", ())
    assert "it waits for pod shop/old" in step.changes[0].text


@pytest.mark.parametrize(
    "fenced",
    [
        back(since="2027-03-01T10:55:00Z"),
        back(ready="Unknown"),
        back("2027-03-01T06:12:00Z", OUT_OF_SERVICE, {"key": "dedicated", "effect": "NoExecute"}),
    ],
    ids=["just back", "does not report", "kept for others"],
)
def test_other_taints_are_as_before(fenced: Object) -> None:
    (row,) = drain_plan.plan(seen(fenced), "a").nodes[0].forecasts

    assert row.reason.partition(no_target.NOWHERE)[2].find("b reports") == -1
    assert "remediation" not in row.remedy


def test_a_guest_is_not_stopped_while_it_can_start_nowhere() -> None:
    """Room is missing, so a restart on a cordoned node leaves the guest down."""
    full = seen(node("b", room=SMALL), vm("more", on="b"))
    (step,) = repair(full, Goal.DRAIN, ["a"]).steps

    assert step.id == "add-nodes:a"
    assert not any("downtime" in each.title for each in step.alternatives)
