"""A pod that its finalizer keeps: which controller removes it, and whether that works."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.states import pod_finalizers
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import POD

ARGO, KUEUE = "workflows.argoproj.io/status", "kueue.x-k8s.io/managed"
NOW, THEN = "2026-01-01T12:00:00Z", "2026-01-01T09:00:00Z"
WAITING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}}


def kept(*finalizers: str) -> Any:
    metadata = {"deletionTimestamp": THEN, "finalizers": list(finalizers)}
    return manifest(
        "v1",
        "Pod",
        "job-1",
        "etl",
        metadata=metadata,
        spec={"nodeName": "a"},
        status={"phase": "Running"},
    )


def controller(name: str, *, ready: bool = False, state: Any = WAITING) -> Any:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name.rpartition("-")[0],
        "controller": True,
    }
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "main", "ready": ready, "state": state}],
    }
    return manifest(
        "v1",
        "Pod",
        name,
        "argo",
        metadata={"ownerReferences": [owner]},
        spec={"nodeName": "b"},
        status=status,
    )


def asked(*objects: Any, complete: tuple[str, ...] = ("*",)) -> tuple[str, str]:
    nodes = [
        manifest("v1", "Node", name, status={"conditions": [{"type": "Ready", "status": "True"}]})
        for name in "ab"
    ]
    found = Snapshot([*nodes, *objects], complete=list(complete), time=NOW)
    (blocker,) = drain_plan.plan(found, "a").nodes[0].pods.blockers
    return blocker.reason, blocker.remedy


def test_the_controller_crashes() -> None:
    reason, remedy = asked(kept(ARGO), controller("workflow-controller-6b-x"))
    assert reason == (
        "it should have ended 3 h ago, but finalizer workflows.argoproj.io/status is still set: "
        "its controller, Deployment argo/workflow-controller, does not work (CrashLoopBackOff: "
        "back-off 5m0s restarting)"
    )
    assert remedy == (
        "Repair Deployment argo/workflow-controller, which then removes the finalizer by itself: "
        "kubectl describe pod workflow-controller-6b-x -n argo"
    )


def test_a_controller_of_which_one_replica_works_is_not_called_broken() -> None:
    both = (
        controller("workflow-controller-6b-x"),
        controller("workflow-controller-6b-y", ready=True, state={}),
    )
    reason, remedy = asked(kept(ARGO), *both)
    assert reason.endswith("is still set")
    assert remedy == (
        "See why Deployment argo/workflow-controller does not remove it: kubectl logs "
        "workflow-controller-6b-y -n argo"
    )


@pytest.mark.parametrize(
    ("finalizer", "remedy"),
    [
        (ARGO, "See that its controller, workflow-controller, runs, which then removes"),
        (KUEUE, "See that its controller, kueue-controller-manager, runs"),
        (
            "batch.kubernetes.io/job-tracking",
            "Repair kube-controller-manager, which removes the finalizer",
        ),
        (
            "example.com/other",
            "Repair the controller of the finalizer: kubectl describe pod job-1 -n etl",
        ),
    ],
)
def test_no_pod_of_the_controller_is_known(finalizer: str, remedy: str) -> None:
    """It may have another name: a namespace is called like its project."""
    own = [manifest("v1", "Namespace", name) for name in ("argo", "kueue-system", "example")]
    reason, said = asked(kept(finalizer), *own)
    assert reason.endswith(f"finalizer {finalizer} is still set")
    assert said.startswith(remedy)


@pytest.mark.parametrize(
    ("finalizer", "project"), [(KUEUE, "kueue"), (ARGO, "argo"), ("example.com/other", "example")]
)
def test_nothing_is_called_like_the_project_of_the_finalizer(finalizer: str, project: str) -> None:
    reason, said = asked(kept(finalizer))
    nothing = (
        "no pod, no namespace and no API" if project == "example" else "no pod and no namespace"
    )
    assert reason.endswith(f"does not seem to run: {nothing} here is called like {project}")
    assert said.startswith(
        f"Start that controller. If {project} is not installed any more, nothing else removes"
    )
    assert '"op":"test","path":"/metadata/finalizers/0"' in said


GUARD = "etl.acme.example/work-release"


def of_etl(name: str, space: str = "etl") -> Any:
    found = controller(name)
    found.data["metadata"]["namespace"] = space
    return found


@pytest.mark.parametrize(
    ("others", "gone"),
    [
        ((manifest("v1", "Namespace", "etl"), of_etl("job-2")), True),  # its own, and one like it
        ((of_etl("petlic-1-x", "petlic"),), True),  # a short word in another one
        ((of_etl("release-bot-1-x"),), False),  # another workload of its namespace
        ((of_etl("acme-operator-1-x", "tools"),), False),
        ((manifest("v1", "Namespace", "acme-system"),), False),
        ((manifest("apiregistration.k8s.io/v1", "APIService", "v1.acme.example"),), False),
    ],
)
def test_a_domain_that_nothing_else_here_bears(others: tuple[Any, ...], gone: bool) -> None:
    reason, said = asked(kept(GUARD), *others)
    assert ("no API here is called like etl.acme.example" in reason) is gone
    assert ("as a decision, see that what it guards (work-release) is released" in said) is gone
    assert said.startswith("Start that controller" if gone else "Repair the controller")


def test_apis_that_were_not_read() -> None:
    reason, _ = asked(kept(GUARD), complete=("nodes", "pods", "namespaces"))
    assert "no pod and no namespace here" in reason


def test_pods_that_were_not_all_read_say_nothing_of_a_controller() -> None:
    reason, said = asked(kept(KUEUE), complete=("nodes",))
    assert reason.endswith("is still set")
    assert said.startswith("See that its controller, kueue-controller-manager, runs")


def test_a_chart_writes_its_name_before_that_of_the_controller() -> None:
    reason, remedy = asked(
        kept(ARGO), controller("argo-workflows-workflow-controller-6b-x", ready=True, state={})
    )
    assert reason.endswith("is still set")
    assert remedy.startswith(
        "See why Deployment argo/argo-workflows-workflow-controller does not remove it"
    )


TRACKED = "batch.kubernetes.io/job-tracking"


def of_job(phase: str = "Succeeded", *others: str, owner: bool = True) -> Any:
    references = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "nightly",
            "uid": "u1",
            "controller": True,
        }
    ]
    found = kept(*others, TRACKED)
    found.data["metadata"]["ownerReferences"] = references if owner else []
    found.data["status"]["phase"] = phase
    return found


def job(uid: str = "u1") -> Any:
    return manifest("batch/v1", "Job", "nightly", "etl", metadata={"uid": uid})


@pytest.mark.parametrize("others", [(), (job("u2"),)])
def test_a_pod_whose_job_is_gone(others: tuple[Any, ...]) -> None:
    reason, remedy = asked(of_job(), *others)
    assert (
        f"finalizer {TRACKED} is still set: it has ended (Succeeded) and its Job nightly does "
        "not exist"
    ) in reason
    assert remedy.startswith(
        "Nothing else needs this finalizer, so remove it alone: kubectl patch pod job-1 -n etl"
    )
    assert f'{{"op":"test","path":"/metadata/finalizers/0","value":"{TRACKED}"}}' in remedy


def test_only_that_finalizer_is_removed() -> None:
    found = of_job("Failed")
    found.data["metadata"]["finalizers"].append("example.com/archive")
    reason, remedy = asked(found)
    assert f"finalizers {TRACKED}, example.com/archive are still set" in reason
    assert "example.com" not in remedy


def test_a_pod_without_a_job() -> None:
    assert "belongs to no Job any more" in asked(of_job(owner=False))[0]


@pytest.mark.parametrize("objects", [[of_job(), job()], [of_job("Running")]])
def test_a_job_that_may_be_counted(objects: list[Any]) -> None:
    assert asked(*objects)[1].startswith("Repair kube-controller-manager")


def test_jobs_that_were_not_read() -> None:
    assert asked(of_job(), complete=("pods", "nodes"))[1].startswith(
        "Repair kube-controller-manager"
    )


def of_workflow(phase: str = "Succeeded") -> Any:
    found = of_job(phase)
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
    found.data["metadata"]["ownerReferences"][0].update(owner)
    found.data["metadata"]["finalizers"] = [ARGO]
    return found


def workflow(name: str) -> Any:
    return manifest("argoproj.io/v1alpha1", "Workflow", name, "etl", metadata={"uid": "u1"})


WORKS = controller("workflow-controller-6b-x", ready=True, state={})


def test_a_pod_whose_workflow_was_deleted_while_its_controller_was_down() -> None:
    reason, remedy = asked(of_workflow(), workflow("other"), WORKS)
    assert reason.endswith(
        "it has ended (Succeeded) and its Workflow nightly does not exist any more, so "
        "workflow-controller records it for none and does not remove the finalizer"
    )
    assert remedy.startswith("Nothing else needs this finalizer, so remove it alone: kubectl patch")


@pytest.mark.parametrize(
    ("objects", "complete"),
    [
        ([of_workflow(), workflow("nightly")], "*"),
        ([of_workflow("Running")], "*"),
        ([of_workflow()], "pods"),
    ],
)
def test_a_workflow_that_may_be_there(objects: list[Any], complete: str) -> None:
    remedy = asked(*objects, WORKS, complete=(complete, "nodes"))[1]
    assert remedy.startswith("See why Deployment argo/workflow-controller does not remove it")


def test_many_kept_pods_are_compared_with_the_others_once() -> None:
    class Counting(Snapshot):
        asked = 0

        def known(self, kind: Any, namespace: Any = None) -> Any:
            self.asked += kind is POD
            return super().known(kind, namespace)

    pods = [kept("guard.example.net/hold") for _ in range(3)]
    for number, pod in enumerate(pods):
        pod.data["metadata"]["name"] = f"job-{number}"
    found = Counting([*pods, controller("web-6b-x")], complete=["*"], time=NOW)
    every, before = [], 0
    for pod in pods:
        every.append(pod_finalizers.held(pod, found))
        before = before or found.asked
    assert all(each and each.why.endswith("guard.example.net") for each in every)
    assert found.asked == before
