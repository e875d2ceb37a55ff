"""Pods that Kyverno changed, and their siblings not."""

from __future__ import annotations

from tests.builders import complete, manifest
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.evidence import pod_mutations
from virt_admit.model.kubernetes.objects import Object

MARK = "cache-images.hub-cache.kyverno.io: replaced /spec/containers/0/image\n"


def _pod(name: str, mark: str = "", *, ready: bool = True, owner: str = "u1") -> Object:
    annotations = {"policies.kyverno.io/last-applied-patches": mark} if mark else {}
    owners = [{"kind": "DaemonSet", "name": "a", "uid": owner, "controller": True}]
    conditions = [{"type": "Ready", "status": str(ready)}]
    return manifest(
        *("v1", "Pod", name, "ns"),
        metadata={"annotations": annotations, "ownerReferences": owners},
        status={"conditions": conditions},
    )


def test_a_pod_that_alone_was_changed() -> None:
    sick = _pod("a", MARK, ready=False)
    cluster = complete(sick, _pod("b"), _pod("c"))
    assert pod_mutations.alone(sick, cluster) == "policy hub-cache of Kyverno"


def test_what_explains_nothing() -> None:
    sick = _pod("a", MARK, ready=False)
    assert pod_mutations.alone(sick, complete(sick, _pod("b", MARK))) == ""
    assert pod_mutations.alone(sick, complete(sick, _pod("b", owner="u2"))) == ""
    assert pod_mutations.alone(sick, complete(sick, _pod("b", ready=False))) == ""
    assert pod_mutations.alone(_pod("a", "free text"), complete(_pod("b"))) == ""
    label = _pod("a", MARK.replace("/spec/containers/0/image", "/metadata/labels"), ready=False)
    assert pod_mutations.alone(label, complete(label, _pod("b"))) == ""


def test_a_sibling_without_the_mark_has_the_same_fault() -> None:
    sick = _pod("a", MARK, ready=False)
    assert pod_mutations.alone(sick, complete(sick, _pod("b"), _pod("c", ready=False))) == ""
    assert pod_mutations.alone(sick, complete(sick, _pod("b"), _pod("c", MARK, ready=False)))


def test_the_log_is_seen_before_a_policy_is_changed() -> None:
    sick = _pod("a", MARK, ready=False)
    sick.data["spec"] = {"containers": [{"name": "x"}]}
    ended = {"terminated": {"exitCode": 3}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    sick.data["status"]["containerStatuses"] = [{"name": "x", "state": waits, "lastState": ended}]
    there = complete(sick, _pod("b"))
    broken = broken_pods.of_pod(sick, there)
    assert broken is not None
    found = broken_pods.changed(broken, there)
    assert "exit code 3, and policy hub-cache of Kyverno changed this pod" in found.why
    assert "if that comes from the change, exclude namespace ns" in found.remedy
    assert ": kubectl logs a -n ns --previous; if that comes from the change" in found.remedy
