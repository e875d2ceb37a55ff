"""What a plan and a drain say about budgets that allow no eviction: numbers, who sets them, and
pods that are not ready.
"""

from __future__ import annotations

import math

import pytest

from tests.builders import manifest
from tests.for_each import for_each
from tests.forecasts.repair.broken_clusters import ROOM, cluster, node
from tests.forecasts.repair.budget_causes import BROKEN, LABELS, autoscaler, budget, deployment, web
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.budgets import pod_budgets
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.plan import text

SHARE = budget("web", LABELS, minAvailable="80%")


def remedy(*objects):
    """Return the remedy of the one thing that keeps node ``a`` from being drained."""
    (found,) = drain_plan.plan(cluster(*objects), "a").nodes[0].pods.blockers
    return found.remedy


def plan(*objects, version=None):
    broken = cluster(*objects)
    broken.server_version = version
    return repair(broken, Goal.DRAIN)


def why(*objects, version=None):
    """Return why no step helps."""
    found = plan(*objects, version=version)
    assert not found.steps, found.steps
    return found.remaining[0].why


@pytest.mark.parametrize("share", range(1, 100))
def test_the_smallest_number_of_pods_lets_one_go_and_one_less_does_not(share):
    number = pod_budgets.enough(budget("web", LABELS, minAvailable=f"{share}%"))
    assert number - math.ceil(number * share / 100) == 1
    assert all(math.ceil(less * share / 100) == less for less in range(1, number))


@for_each(
    "spec, number",
    [
        ({"minAvailable": 3}, 4),
        ({"minAvailable": "100%"}, 0),
        ({"maxUnavailable": 0}, 0),
        ({"minAvailable": "x"}, 0),
    ],
)
def test_a_budget_says_how_many_pods_are_enough(spec, number):
    assert pod_budgets.enough(budget("web", LABELS, **spec)) == number


def keda():
    target = {"name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicaCount": 3}
    return manifest("keda.sh/v1alpha1", "ScaledObject", "web", "shop", spec=spec)


def owned(kind):
    pod = web(1, "a")
    owner = {"apiVersion": "x.io/v1", "kind": kind, "name": "web", "controller": True}
    return Object(
        {**pod.data, "metadata": {**pod.metadata.map, "ownerReferences": [owner]}}, "shop"
    )


def hashed():
    """Return a pod of a Deployment whose ReplicaSet is not known."""
    pod = owned("ReplicaSet")
    pod.data["metadata"]["labels"] = {**LABELS, "pod-template-hash": "5d4f"}
    pod.data["metadata"]["ownerReferences"][0]["name"] = "web-5d4f"
    return pod


SEE = ": kubectl describe pdb web -n shop"
INSTEAD = f", or set maxUnavailable: 1 instead of minAvailable{SEE}"
SCALED = "in HorizontalPodAutoscaler web, which scales Deployment web"
PATCH = "kubectl patch horizontalpodautoscaler web -n shop --type=merge -p "
MORE = PATCH + """'{"spec":{"minReplicas":5}}'"""
WAYS = {
    "a Deployment": (
        (web(1, "a"), *deployment(1)),
        "Run at least 5 pods of Deployment web",
        "kubectl scale deployment/web -n shop --replicas=5",
    ),
    "an autoscaler": (
        (web(1, "a"), *deployment(1), autoscaler()),
        f"Set minReplicas to 5 {SCALED}",
        MORE,
    ),
    "an autoscaler of few": (
        (web(1, "a"), *deployment(1), autoscaler(most=4)),
        f"Set minReplicas and maxReplicas to 5 {SCALED}",
        PATCH + """'{"spec":{"minReplicas":5,"maxReplicas":5}}'""",
    ),
    "an autoscaler, and a ReplicaSet that is not known": (
        (hashed(), autoscaler()),
        f"Set minReplicas to 5 {SCALED}",
        MORE,
    ),
    "a Deployment that is not known": ((hashed(),), "Run at least 5 pods of Deployment web", ""),
    "KEDA": (
        (web(1, "a"), *deployment(1), keda()),
        (
            "Set minReplicaCount and maxReplicaCount to 5 in ScaledObject web, which scales "
            "Deployment web"
        ),
        "kubectl patch scaledobject web -n shop --type=merge -p "
        """'{"spec":{"minReplicaCount":5,"maxReplicaCount":5}}'""",
    ),
    "another controller": ((owned("WebApp"),), "Ask for at least 5 pods of WebApp web", ""),
}


@for_each("name", WAYS)
def test_the_number_of_pods_and_what_sets_it_are_named(name):
    """The command is that of the first way, which the words before it name."""
    objects, words, command = WAYS[name]
    first = f"{words}: {command}; or set maxUnavailable: 1 instead of minAvailable"
    assert remedy(*objects, SHARE) == (first if command else f"{words}{INSTEAD}")


@for_each("spec", [{"minAvailable": "100%"}, {"maxUnavailable": 0}, {"maxUnavailable": "0%"}])
def test_no_number_of_pods_helps_a_budget_that_keeps_all(spec):
    objects = (web(1, "a"), *deployment(1), budget("web", LABELS, **spec))
    assert (
        remedy(*objects)
        == why(*objects)
        == f"No number of pods is enough, so let its owner set maxUnavailable: 1{SEE}"
    )


@for_each(
    "objects, words",
    [
        ((web(1, "a"), *deployment(1), autoscaler(most=4)), "maxReplicas to 5"),
        ((web(1, "a"), *deployment(1), keda()), "minReplicaCount"),
        ((owned("WebApp"),), "Ask for at least 5 pods of WebApp web"),
        (
            (
                web(1, "a"),
                *deployment(1),
                node("a", room={**ROOM, "pods": "1"}),
                node("b", room={**ROOM, "pods": "2"}),
            ),
            "no",
        ),
    ],
)
def test_a_plan_says_why_it_adds_no_pods(objects, words):
    assert words in why(*objects, SHARE)


def test_a_plan_adds_the_pods_that_are_enough():
    (step,) = plan(web(1, "a"), *deployment(1), SHARE).steps
    assert step.title == "run 5 replicas instead of 1"
    (step,) = plan(web(1, "a"), *deployment(1), autoscaler(), SHARE).steps
    assert (step.subject.kind.kind, step.title) == (
        "HorizontalPodAutoscaler",
        "set minReplicas to 5: Deployment web has 1 pod",
    )


def test_more_pods_have_a_cost_and_the_owner_of_the_budget_has_another_way():
    found = plan(web(1, "a"), *deployment(1), autoscaler(), SHARE)
    (step,) = found.steps
    assert (step.cost.pods, text.cost(step)) == (4, "4 more pods")
    assert text.text(found).startswith(
        "1 step in 1 namespace makes all 2 nodes drainable: 4 more pods."
    )
    (other,) = step.alternatives
    assert (other.decision, other.title) == (
        True,
        "set maxUnavailable: 1 instead of minAvailable in PodDisruptionBudget shop/web",
    )


def test_a_plan_does_not_multiply_pods():
    assert "it would take 99 pods more" in why(
        web(1, "a"), *deployment(1), budget("web", LABELS, minAvailable="99%")
    )


# --- pods that are not ready ----------------------------------------------------------------------

POLICY = "unhealthyPodEvictionPolicy: AlwaysAllow"
STUCK = budget("web", LABELS, healthy=0, maxUnavailable=1)


def of_operator(found):
    owner = {"apiVersion": "x.io/v1", "kind": "WebApp", "name": "web", "controller": True}
    metadata = {**found.metadata.map, "ownerReferences": [owner]}
    return Object({**found.data, "metadata": metadata}, found.namespace)


def managed(found):
    metadata = {**found.metadata.map, "labels": {"app.kubernetes.io/managed-by": "web-operator"}}
    return Object({**found.data, "metadata": metadata}, found.namespace)


def test_the_policy_is_named_for_pods_that_crash():
    found = remedy(*BROKEN, STUCK)
    assert found.startswith("Repair these pods")
    assert POLICY in found


@for_each("changed", [of_operator, managed])
def test_the_budget_of_an_operator_is_left_to_it(changed):
    assert "unhealthyPodEvictionPolicy" not in remedy(*BROKEN, changed(STUCK))
    assert "unhealthyPodEvictionPolicy" not in why(*BROKEN, changed(STUCK))


def test_a_release_without_the_policy_has_no_such_step():
    assert plan(*BROKEN, STUCK, version="v1.31.4").reaches
    assert "unhealthyPodEvictionPolicy" not in why(*BROKEN, STUCK, version="v1.26.9")


def test_a_healthy_pod_is_not_freed_by_the_policy():
    """The policy is about the pod that is evicted, not about those that the budget lacks."""
    healthy, broken = web(1, "a"), BROKEN[0]
    elsewhere = Object(
        {
            **broken.data,
            "metadata": {**broken.metadata.map, "name": "web-2"},
            "spec": {"nodeName": "b"},
        },
        "shop",
    )
    found = budget("web", LABELS, pods=2, healthy=1, maxUnavailable=1)
    assert POLICY not in remedy(healthy, elsewhere, *deployment(2), found)
    plans = repair(cluster(healthy, elsewhere, *deployment(2), found), Goal.DRAIN, ("a",))
    assert not plans.steps
    both = (healthy, Object({**elsewhere.data, "spec": {"nodeName": "a"}}, "shop"))
    assert not plan(*both, *deployment(2), found).steps


def test_a_pod_that_is_not_ready_since_minutes_may_become_ready():
    starting = web(1, "a", since="2027-03-01T10:55:00Z")
    assert POLICY in remedy(starting, *deployment(1), STUCK)
    assert POLICY in why(starting, *deployment(1), STUCK)
