"""A pod of a DaemonSet that crashes since its template has changed: what is new there is said."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.kubernetes.cluster import Snapshot

OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u1"}


def agent(name, generation, *, ready=False, owner=OWNER, **container):
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    return manifest(
        "v1",
        "Pod",
        name,
        "tools",
        metadata={
            "labels": {"pod-template-generation": str(generation)},
            "ownerReferences": [owner | {"controller": True}],
        },
        spec={"containers": [{"name": "agent", "image": "agent:1"} | container]},
        status={
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {"name": "agent", "ready": ready, "state": {} if ready else waiting}
            ],
        },
    )


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"image": "agent:2"}, "image agent:2"),
        ({"args": ["--fast"]}, "args --fast"),
        ({"env": [{"name": "MODE", "value": "secret"}]}, "env MODE"),
    ],
)
def test_what_is_new_in_the_template_is_named(container, words):
    pod, older = agent("b", 2, **container), agent("a", 1, ready=True)
    why = broken_pods.why(pod, Snapshot([pod, older], complete=["*"]))

    assert why.startswith("CrashLoopBackOff")
    assert why.endswith(f" (new in its template, whose older pods are ready: {words})")


@pytest.mark.parametrize(
    "other",
    [
        agent("a", 2, ready=True),
        agent("a", 3, ready=True),
        agent("a", 1),
        agent("a", 1, ready=True, owner=OWNER | {"uid": "u2"}),
    ],
    ids=["the same template", "a newer one", "an older one that crashes too", "another DaemonSet"],
)
def test_nothing_is_said_without_older_pods_that_are_ready(other):
    pod = agent("b", 2, image="agent:2")
    assert "template" not in broken_pods.why(pod, Snapshot([pod, other], complete=["*"]))


@pytest.mark.parametrize(
    ("others", "where"),
    [
        (
            [agent("a", 2, ready=True), agent("c", 2, ready=True)],
            ", on n1: its 2 siblings are ready",
        ),
        (
            [agent("a", 2, ready=True), agent("c", 1, ready=True)],
            ", on n1: its only sibling is ready",
        ),
        ([agent("a", 2)], ", in DaemonSet agent: none of its 2 pods is ready"),
        ([agent("a", 2), agent("c", 2, ready=True)], ""),
        ([agent("a", 1, ready=True)], ""),
        ([], ""),
    ],
)
def test_the_siblings_say_where_the_cause_is(others, where):
    pod = agent("b", 2)
    pod.data["spec"]["nodeName"] = "n1"
    ended = {"terminated": {"exitCode": 1, "message": "cannot open /dev/x"}}
    pod.data["status"]["containerStatuses"][0]["lastState"] = ended
    found = broken_pods.of_pod(pod, Snapshot([pod, *others], complete=["*"]))
    assert found.remedy == (
        f"correct what pod b says as it ends{where}: kubectl logs b -n tools --previous"
    )
