"""kube-scheduler against the API server, for tests that have to know which node a Pod would get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane, StartError
from tests.waiting import eventually

TAINT = "node.kubernetes.io/not-ready:NoSchedule-"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "to-schedule", "namespace": "default"},
    "spec": {
        "nodeSelector": {"test": "scheduler"},
        "containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "2"}}}],
    },
}


def node(name: str, cpu: str) -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"test": "scheduler"}},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }


def test_a_pod_is_bound_to_the_only_node_that_has_room(control_plane: ControlPlane) -> None:
    def pod() -> Any:
        return json.loads(
            control_plane.kubectl("get", "pod", "to-schedule", "--output=json", check=True).stdout
        )

    nodes = [node("too-small", "1"), node("large-enough", "4")]
    items = {"apiVersion": "v1", "kind": "List", "items": [*nodes, POD]}
    control_plane.kubectl("create", "-f", "-", input=json.dumps(items), check=True)
    try:
        for each in nodes:
            control_plane.kubectl("taint", "node", each["metadata"]["name"], TAINT, check=True)
        assert "nodeName" not in pod()["spec"]

        with control_plane.scheduler() as scheduler:
            node_name = eventually(lambda: pod()["spec"].get("nodeName"))

        assert node_name == "large-enough"
        assert not scheduler.running
    finally:
        control_plane.kubectl(
            "delete", "-f", "-", "--force", "--grace-period=0", input=json.dumps(items), check=True
        )


def test_a_scheduler_that_does_not_start_says_why(control_plane: ControlPlane) -> None:
    with ControlPlane(control_plane.binaries) as plane:
        plane.kubeconfig.write_text("{")
        with pytest.raises(StartError, match="kube-scheduler exited"), plane.scheduler():
            pass
        assert len(plane.pids) == 2  # etcd and kube-apiserver
