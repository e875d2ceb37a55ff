"""Pods that the kubelet refused."""

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.placement.components.longhorn import kubelet_refusals

FULL = "Node didn't have enough resource: cpu, requested: 960, used: 7360, capacity: 8000"


def pod(name, status, cpu="1", owner="render", on="w3"):
    owners = [{"kind": "ReplicaSet", "name": owner, "controller": True}]
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"nodeName": on, "containers": containers}
    return manifest(
        "v1", "Pod", name, "batch", metadata={"ownerReferences": owners}, spec=spec, status=status
    )


def test_a_node_without_room_and_who_has_it():
    refused = pod(
        "im",
        {"phase": "Failed", "reason": "OutOfcpu", "message": f"Pod was rejected: {FULL}"},
        owner="im",
    )
    running = {"phase": "Running"}
    others = [pod("r-1", running, "2200m"), pod("r-2", running, "2200m")]
    cluster = complete(refused, *others, pod("b", running, "7", "other", "w1"))

    assert kubelet_refusals.of_pod(refused, cluster)[:2] == (
        "OutOfcpu, its pod requests 960m of cpu, and 7360m of 8 are in use",
        "free 320m of cpu on w3, where ReplicaSet batch/render requests 4400m",
    )


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {"phase": "Failed", "reason": "NodeAffinity", "message": "Pod was rejected: No match."},
            "NodeAffinity: No match",
        ),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "c"}]}, None),
        ({"phase": "Failed", "message": "one"}, None),
        ({"phase": "Running", "reason": "OutOfcpu"}, None),
    ],
    ids=["another reason", "it ran before", "no reason", "it runs"],
)
def test_other_pods(status, why):
    found = kubelet_refusals.of_pod(pod("p", status), complete())
    assert (found and found.reason) == why
