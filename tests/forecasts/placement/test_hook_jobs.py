"""A hook of a chart whose pod is kept from every node by the pods of that chart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.placement.components.controllers import hook_jobs
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, EARLY = "2027-03-01T12:00:00Z", "2027-03-01T11:13:00Z"
SPACE = "cattle-system"
SAYS = "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "rancher"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}


def owner(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "controller": True}]


def running(on: str, affinity: object = APART) -> object:
    metadata = {"labels": {"app": "rancher"}, "ownerReferences": owner("ReplicaSet", "rancher-1")}
    spec = {"nodeName": on, "affinity": affinity}
    return manifest("v1", "Pod", f"rancher-{on}", SPACE, metadata=metadata, spec=spec)


def waiting(since: str = EARLY, says: str = SAYS) -> object:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": says}
    metadata = {"labels": {"app": "rancher"}, "ownerReferences": owner("Job", "hook")}
    status = {"phase": "Pending", "conditions": [said | {"lastTransitionTime": since}]}
    return manifest("v1", "Pod", "hook-1", SPACE, metadata=metadata, status=status)


def job(hook: str = "pre-upgrade") -> object:
    labels = {"release": "rancher", "chart": "rancher-2.12.0"}
    metadata = {"annotations": {"helm.sh/hook": hook}, "labels": labels}
    return manifest("batch/v1", "Job", "hook", SPACE, metadata=metadata, status={"active": 1})


def held(*items: object, replicas: int = 2) -> hook_jobs.HeldHook | None:
    metadata = {"ownerReferences": owner("Deployment", "rancher")}
    base = [
        *(node(name, {"kubernetes.io/hostname": name}) for name in "ab"),
        manifest("apps/v1", "ReplicaSet", "rancher-1", SPACE, metadata=metadata),
        manifest("apps/v1", "Deployment", "rancher", SPACE, spec={"replicas": replicas}),
    ]
    found = hook_jobs.held(Snapshot([*base, *items], complete=["*"], time=NOW))
    return found[0] if found else None


def test_the_pods_of_the_chart_are_on_each_node() -> None:
    found = held(job(), waiting(), running("a"), running("b"))
    assert found is not None
    assert "hook Job cattle-system/hook (pre-upgrade) has waited for 47 min" in found.reason
    assert "label app=rancher, from which the pods of Deployment cattle-system/rancher" in (
        found.reason
    )
    assert "on each node (a, b)" in found.reason
    assert "kubectl scale deployment rancher -n cattle-system --replicas=1" in found.remedy
    assert "helm history rancher -n cattle-system" in found.remedy


def test_a_deployment_with_one_pod_is_not_scaled_to_none() -> None:
    found = held(job(), waiting(), running("a"), running("b"), replicas=1)
    assert found is not None
    assert "kubectl scale" not in found.remedy


@pytest.mark.parametrize(
    "items",
    [
        (job(), waiting(), running("a")),
        (job(), waiting(), running("a"), running("b", affinity={})),
        (job(), waiting(since="2027-03-01T11:58:00Z"), running("a"), running("b")),
        (job(), waiting(says="2 Insufficient memory"), running("a"), running("b")),
        (job("post-upgrade"), waiting(), running("a"), running("b")),
    ],
    ids=["a node is free", "no anti-affinity", "just now", "no room", "another hook"],
)
def test_hooks_that_are_not_held_by_it(items: tuple[object, ...]) -> None:
    assert held(*items) is None
