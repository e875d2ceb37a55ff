"""Budgets whose pods run and are never ready, as their readiness probe always fails."""

from tests.builders import manifest
from tests.forecasts.drain.test_pod_evictions import HERE, budget
from tests.model.evidence.test_failed_probes import NOW, pod, warned
from virt_admit.forecasts.drain import pod_evictions
from virt_admit.model.kubernetes.cluster import Snapshot

LABELS = {"app": "web"}


def blocker(since="2026-02-01T12:00:00Z", on=("a", "b")):
    """The block of node a by the budget of a pod there, of one elsewhere, and of one ready pod."""
    pods = [pod(f"v-{number}", since, "/healthz", LABELS) for number in range(3)]
    for found, node in zip(pods, (*on, "c"), strict=True):
        found.data["spec"]["nodeName"] = node
        found.data["metadata"]["namespace"] = "shop"
    pods[2].data["status"]["conditions"][0]["status"] = "True"
    events = [warned(found, "HTTP probe failed with statuscode: 500") for found in pods[:2]]
    held = budget(maxUnavailable=1, expected=3, desired=2, healthy=1, allowed=0)
    nodes = [HERE, manifest("v1", "Node", "b"), manifest("v1", "Node", "c")]
    cluster = Snapshot([*nodes, *pods, *events, held], ["*"], time=NOW)
    found = pod_evictions.of_node(cluster, "a").blockers
    return next(each for each in found if each.kind == "PodDisruptionBudget")


def test_the_probe_is_named_and_no_wait_advised():
    found = blocker()
    assert "pods v-0, v-1 run, but the readiness probe GET /healthz has failed" in found.reason
    assert "statuscode: 500" in found.reason
    assert found.remedy.startswith("See why the program answers so, or correct the readiness probe")
    assert "AlwaysAllow in the budget, which lets pods go that are not ready, but not v-2" in (
        found.remedy
    )


def test_what_is_not_ready_for_a_short_time_is_waited_for():
    assert blocker(since="2026-02-04T11:50:00Z").remedy.startswith("Wait until it is ready")


def test_what_was_ready_before_is_not_let_go():
    found = blocker(since="2026-02-04T09:00:00Z")
    assert "has failed for 3 h: HTTP probe failed with statuscode: 500" in found.reason
    assert found.remedy.startswith("Wait until it is ready, or see why the program answers so")
    assert "AlwaysAllow" not in found.remedy
    assert "readiness probe" not in found.remedy
