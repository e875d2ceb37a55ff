"""Clusters of which a node cannot be drained because of a budget over pods that are no VMs."""

from __future__ import annotations

from typing import Any, Final

from tests.builders import manifest
from virt_admit.forecasts.repair.repair_plan import CostClass
from virt_admit.model.kubernetes.objects import Object

LABELS: Final = {"app": "web"}
CRASHES: Final = [{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]


def budget(
    name: str,
    labels: dict[str, str],
    allowed: int = 0,
    pods: int = 1,
    healthy: int = -1,
    **spec: Any,
) -> Object:
    status = {"disruptionsAllowed": allowed, "expectedPods": pods, "desiredHealthy": pods}
    status["currentHealthy"] = pods if healthy < 0 else healthy
    spec = {"selector": {"matchLabels": dict(labels)}} | spec
    return manifest("policy/v1", "PodDisruptionBudget", name, "shop", spec=spec, status=status)


def web(number: int, on: str, *, since: str = "", **status: Any) -> Object:
    """Return a pod of the Deployment; ``since``: when it was last ready."""
    owner = {"kind": "ReplicaSet", "name": "web", "controller": True}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": since} if since else None
    return manifest(
        "v1",
        "Pod",
        f"web-{number}",
        "shop",
        metadata={"labels": LABELS, "ownerReferences": [owner]},
        spec={"nodeName": on, "containers": [{"name": "c"}]},
        status={"phase": "Running", "conditions": [ready or {"type": "Ready", "status": "True"}]}
        | status,
    )


def deployment(replicas: int) -> list[Object]:
    owner = {"kind": "Deployment", "name": "web", "controller": True}
    spec = {"replicas": replicas}
    return [
        manifest("apps/v1", "Deployment", "web", "shop", spec=spec),
        manifest(
            "apps/v1", "ReplicaSet", "web", "shop", metadata={"ownerReferences": [owner]}, spec=spec
        ),
    ]


def autoscaler(most: int = 10) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": most}
    return manifest("autoscaling/v2", "HorizontalPodAutoscaler", "web", "shop", spec=spec)


REPLICAS: Final = deployment(2)
BROKEN: Final = (
    web(1, "a", since="2027-03-01T09:00:00Z", containerStatuses=CRASHES),
    *deployment(1),
)
MORE: Final = [("replicas:shop/web", CostClass.NOTHING)]
POLICY: Final = [("evict-unready:shop/web", CostClass.DECISION)]

BUDGETS: Final[dict[str, tuple[Any, list[tuple[str, CostClass]]]]] = {
    "a budget that never allows": (
        (web(1, "a"), web(2, "b"), *REPLICAS, budget("web", LABELS, pods=2, minAvailable=2)),
        MORE,
    ),
    "a budget that demands two pods more": (
        (web(1, "a"), web(2, "b"), *REPLICAS, budget("web", LABELS, pods=2, minAvailable=3)),
        MORE,
    ),
    "a budget of a share, which is rounded up": (
        (web(1, "a"), *deployment(1), budget("web", LABELS, minAvailable="80%")),
        MORE,
    ),
    "a budget of a share, with an autoscaler": (
        (web(1, "a"), *deployment(1), autoscaler(), budget("web", LABELS, minAvailable="80%")),
        MORE,
    ),
    "a budget over a pod that crashes": (
        (*BROKEN, budget("web", LABELS, healthy=0, maxUnavailable=1)),
        POLICY,
    ),
    "a budget that never allows, over a pod that crashes": (
        (*BROKEN, budget("web", LABELS, healthy=0, minAvailable=1)),
        POLICY,
    ),
    "a budget over a pod that is not ready for hours": (
        (
            web(1, "a", since="2027-03-01T08:00:00Z"),
            *deployment(1),
            budget("web", LABELS, healthy=0, maxUnavailable=0),
        ),
        POLICY,
    ),
}
"""For each cause the objects, and the steps of the plan."""
