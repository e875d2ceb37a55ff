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
from virt_admit.forecasts.upgrade.pools import away_nodes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import cordoners
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


UNTAINT = "kubectl taint nodes b node.kubernetes.io/out-of-service-"


def test_the_taint_of_an_administrator_waits_for_no_remediator() -> None:
    (row,) = drain_plan.plan(by_hand(), "a").nodes[0].forecasts

    assert row.remedy == f"check b, then remove its taint by hand: {UNTAINT}"
    assert "remediator" not in row.reason
    assert not fence_taints.stays("b", by_hand())
    (step,) = repair(by_hand(), Goal.DRAIN, ["a"]).steps
    assert (step.title, step.changes[0].text) == ("remove the taint of the fencing", row.remedy)


NO_NEW_PODS = {**OUT_OF_SERVICE, "effect": "NoSchedule"}


@pytest.mark.parametrize("taints", [(NO_NEW_PODS,), (OUT_OF_SERVICE, NO_NEW_PODS)])
def test_the_taint_of_an_administrator_may_have_each_effect(taints: tuple[dict[str, str]]) -> None:
    found = seen(back("2027-03-01T06:12:00Z", *taints))
    left = fence_taints.known(found)["b"]

    assert left.reason.endswith(
        f"still has taint{'s' * (len(taints) > 1)} {left.key} of its fencing"
    )
    assert fence_taints.way_out("b", left, found)[1] == UNTAINT  # one command for both
    assert fence_taints.ends_pods(find(found, NODE, "", "b")) is (OUT_OF_SERVICE in taints)


def test_what_virt_handler_offers_comes_back_with_it() -> None:
    away, here = (
        back("2027-03-01T06:12:00Z", OUT_OF_SERVICE),
        back("2027-03-01T06:12:00Z", OUT_OF_SERVICE),
    )
    for each in (away, here):
        each.data["metadata"]["labels"]["kubevirt.io/schedulable"] = "false"
    handler = {
        "name": "virt-handler-x",
        "namespace": "kubevirt",
        "labels": {"kubevirt.io": "virt-handler"},
    }
    pod = Object(
        {"apiVersion": "v1", "kind": "Pod", "metadata": handler, "spec": {"nodeName": "b"}}
    )

    (row,) = drain_plan.plan(seen(away), "a").nodes[0].forecasts
    assert "b has reported for 4 h 48, and still has taint" in row.reason
    assert row.remedy.endswith(UNTAINT)
    (row,) = drain_plan.plan(seen(here, pod), "a").nodes[0].forecasts
    assert "of its fencing" not in row.reason


@pytest.mark.parametrize("fenced", [True, False])
def test_vms_without_room_for_all_name_the_node_that_is_fenced(fenced: bool) -> None:
    fence = [back("2027-03-01T06:12:00Z", OUT_OF_SERVICE)] if fenced else []
    found = cluster(
        node("a"),
        node("c", room=SMALL),
        vm(on="a"),
        vm("other", on="a"),
        *fence,
        kubevirt(),
        nodes=(),
    )
    found.time = NOW

    (plan,) = drain_plan.plan(found, "a").nodes
    alone = [row for row in plan.forecasts if row.remedy]
    assert [row.outcome for row in plan.forecasts] == [VmOutcome.MIGRATES] * 2
    assert [row.vmi.full_name for row in alone] == list(plan.crowded(plan.moving))
    assert (
        "it could migrate alone, but there is no room with the others of its node (memory: "
        in alone[0].reason
    )
    assert alone[0].remedy.endswith(UNTAINT if fenced else "free that much on one")


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
            "see that b is healthy, then delete Fence",
            "kubectl delete f",
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
    words, command = fence_taints.way_out("b", fence_taints.known(found)["b"], found)
    assert words.startswith("see whether a NodeHealthCheck keeps the remediation of b: selfnode")
    assert command == ""


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


def delayed(delay: str, since: str = "2027-03-01T10:30:00Z") -> list[Object]:
    """Return the remediation of ``b`` that its NodeHealthCheck keeps."""
    check = {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "hosts"},
        "spec": {"healthyDelay": delay},
    }
    metadata = {
        "name": "b",
        "namespace": "ops",
        "annotations": {"remediation.medik8s.io/healthy-delay": since},
        "ownerReferences": [{"kind": "NodeHealthCheck", "name": "hosts"}],
    }
    of = "self-node-remediation.medik8s.io/v1alpha1"
    return [
        Object(check),
        Object({"apiVersion": of, "kind": "SelfNodeRemediation", "metadata": metadata}),
    ]


def test_a_health_check_keeps_the_remediation_for_a_while() -> None:
    found, own = seen(back(), *delayed("1h")), back()

    assert not fence_taints.known(found)
    assert fence_taints.kept(own, found) == (
        "NodeHealthCheck hosts (healthyDelay 1h) keeps SelfNodeRemediation ops/b until 2027-03-01 "
        "11:30 UTC, and its taints go by themselves then"
    )
    cordon = cordoners.of_node(Object({**own.data, "spec": {**own["spec"].map, **CORDON}}), found)
    assert cordon is not None
    assert (cordon.remedy, cordon.uncordon) == ("", False)


CORDON = {"unschedulable": True}


@pytest.mark.parametrize(
    ("own", "objects"),
    [
        (back(), delayed("10m")),
        (back(), delayed("soon")),
        (back(), delayed("2000000h", "9998-03-01T10:30:00Z")),
        (back(), delayed("1h")[:1]),
        (back(ready="Unknown"), delayed("1h")),
    ],
    ids=["it is over", "not a duration", "the end of time", "no remediation", "it is away again"],
)
def test_a_delay_that_keeps_nothing(own: Object, objects: list[Object]) -> None:
    assert fence_taints.kept(own, seen(own, *objects)) == ""


def test_an_administrator_confirms_a_node_that_is_kept_without_an_end() -> None:
    found = seen(back(), *delayed("-1s"))
    left = fence_taints.left(back(), found)

    assert left is not None
    assert fence_taints.way_out("b", left, found) == (
        "see that b is healthy, and confirm it",
        "kubectl annotate node b remediation.medik8s.io/manually-confirmed-healthy=yes",
    )


HEALTH_CHECKS = "nodehealthchecks.remediation.medik8s.io"


@pytest.mark.parametrize(
    ("objects", "unread", "doubted"),
    [
        (delayed("1h")[1:], HEALTH_CHECKS, True),
        ((), "selfnoderemediations.self-node-remediation.medik8s.io", True),
        ((), HEALTH_CHECKS, False),
        (delayed("1h"), HEALTH_CHECKS, False),
    ],
    ids=["its check", "its remediation", "nothing is left to keep", "its check is known"],
)
def test_what_may_keep_the_remediation_is_not_taken_off_unseen(
    objects: list[Object], unread: str, doubted: bool
) -> None:
    fenced = back("2027-03-01T06:12:00Z", REMEDIATION)
    fenced.data["spec"] |= CORDON
    objects = [fenced, *objects]
    found = Snapshot(list(seen(*objects)), complete=("*",), unreadable=(unread,), time=NOW)

    said = f"whether a NodeHealthCheck keeps the remediation of b: {unread} cannot be read"
    assert fence_taints.doubt(fenced, found) == (said if doubted else "")
    cordon = cordoners.of_node(fenced, found)
    assert cordon is not None
    assert (cordon.remedy == f"see {said}") is doubted
    assert cordon.ends is None
    assert list(away_nodes.doubts(found)) == [said] * doubted


def test_a_remediation_that_stays_is_deleted_before_its_taint_goes() -> None:
    fenced = back("2027-03-01T06:12:00Z", REMEDIATION)
    found = seen(fenced, *delayed("10m"))

    assert fence_taints.way_out("b", fence_taints.known(found)["b"], found) == (
        "see that b is healthy, then delete SelfNodeRemediation ops/b: its operator removes its "
        "taint",
        "kubectl delete selfnoderemediation b -n ops",
    )
