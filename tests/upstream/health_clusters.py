"""Random nodes and Machines that the random health checks select."""

from __future__ import annotations

import random
from typing import Any, Final

Json = dict[str, Any]

_LONG_AGO: Final = "2020-01-01T00:00:00Z"


def _condition(kind: str, status: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": _LONG_AGO,
        "reason": "Test",
        "message": "",
    }


def cluster_of(rng: random.Random, check: Json) -> list[Json]:
    """Return what a check watches; one node where it watches nothing."""
    if check["kind"] not in ("MachineHealthCheck", "NodeHealthCheck"):
        return [_node(rng, "n0")]
    group = (
        "cluster.x-k8s.io/v1beta2"
        if "clusterName" in check["spec"]
        else "machine.openshift.io/v1beta1"
    )
    namespace = check["metadata"].get("namespace", "openshift-machine-api")
    names = [str(number) for number in range(rng.randint(0, 6))]
    found = [_node(rng, f"n{name}") for name in names if rng.random() < 0.9]
    found += [_machine(rng, f"m{name}", f"n{name}", group, namespace) for name in names]
    return [_owner(rng), *found] if group.startswith("cluster.x") else found


def _labels(rng: random.Random) -> Json:
    return {"pool": rng.choice("aaab"), **({"role": "x"} if rng.random() < 0.2 else {})}


def _node(rng: random.Random, name: str) -> Json:
    conditions = [_condition("Ready", rng.choice(("True", "True", "False", "Unknown")))]
    conditions += [
        _condition(kind, "True") for kind in ("DiskPressure", "Terminating") if rng.random() < 0.1
    ]
    metadata = {"name": name, "labels": _labels(rng)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"conditions": conditions},
    }


def _machine(rng: random.Random, name: str, node: str, group: str, namespace: str) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "labels": _labels(rng),
        "creationTimestamp": _LONG_AGO,
    }
    status: Json = {"nodeRef": {"name": node}} if rng.random() < 0.85 else {}
    if not group.startswith("cluster.x"):
        return {
            "apiVersion": group,
            "kind": "Machine",
            "metadata": metadata,
            "spec": {},
            "status": status,
        }
    metadata["labels"]["cluster.x-k8s.io/cluster-name"] = rng.choice("ccccd")
    if rng.random() < 0.1:
        metadata["labels"]["cluster.x-k8s.io/control-plane"] = ""
    keys = (
        "cluster.x-k8s.io/skip-remediation",
        "cluster.x-k8s.io/paused",
        "cluster.x-k8s.io/remediate-machine",
    )
    metadata["annotations"] = {key: "" for key in keys if rng.random() < 0.07}
    if rng.random() < 0.05:
        metadata |= {"deletionTimestamp": _LONG_AGO, "finalizers": ["machine.cluster.x-k8s.io"]}
    status["conditions"] = [
        _condition("InfrastructureReady", rng.choice(("True", "True", "False")))
    ]
    status["conditions"] += [_condition("NodeHealthy", rng.choice(("True", "False", "Unknown")))]
    spec = {
        "clusterName": "c",
        "bootstrap": {},
        "infrastructureRef": {"kind": "I", "name": "i", "apiGroup": "i.io"},
    }
    return {
        "apiVersion": group,
        "kind": "Machine",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _owner(rng: random.Random) -> Json:
    kinds = [
        kind for kind in ("InfrastructureReady", "ControlPlaneInitialized") if rng.random() < 0.9
    ]
    spec = {"paused": True} if rng.random() < 0.05 else {}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "c", "namespace": "c"},
        "spec": spec,
        "status": {"conditions": [_condition(kind, "True") for kind in kinds]},
    }
