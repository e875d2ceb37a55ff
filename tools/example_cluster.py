"""The example of a cluster in which no node can be drained: 7 nodes, 40 VMs of 6 owners, and the
faults of real clusters.

The same bytes each time: no random numbers, and the time is a constant.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.example_vms import (
    DEVICES,
    GPU,
    GPU_NODES,
    KUBEVIRT,
    TIME,
    WORKERS,
    ago,
    made,
    stuck_migration,
    workload,
)
from tools.paths import ROOT
from virt_admit.kube import snapshots
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

FILE: Final = ROOT / "examples" / "clusters" / "stuck.json"


def objects() -> list[Object]:
    """Return all objects of the cluster."""
    return [
        Object(each)
        for part in (
            _settings(),
            _nodes(),
            _pools(),
            _checks(),
            _limits(),
            _application(),
            workload(),
            stuck_migration(),
        )
        for each in part
    ]


def _settings() -> Iterator[dict[str, Any]]:
    release = {"observedKubeVirtVersion": "v1.8.2", "phase": "Deployed"}
    migrations = {"parallelOutboundMigrationsPerNode": 1, "completionTimeoutPerGiB": 800}
    configuration = {"evictionStrategy": "LiveMigrate", "migrations": migrations}
    methods = {"workloadUpdateMethods": ["LiveMigrate"]}
    spec = {"configuration": configuration, "workloadUpdateStrategy": methods}
    yield made(KUBEVIRT, "KubeVirt", "kubevirt", "kubevirt", spec=spec, status=release)
    for name in ("virt-api", "virt-controller"):
        labels = {"kubevirt.io": name}
        template = {"metadata": {"labels": labels}}
        yield made(
            "apps/v1",
            "Deployment",
            name,
            "kubevirt",
            spec={"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
            status={"replicas": 2, "readyReplicas": 2, "availableReplicas": 2},
        )
        for node in WORKERS[:2]:
            yield _component(name, node, "ReplicaSet")
    for node in (*WORKERS, *GPU_NODES):
        yield _component("virt-handler", node, "DaemonSet")
    yield made("storage.k8s.io/v1", "StorageClass", "ceph-block", provisioner="rbd.csi.ceph.com")


def _component(name: str, node: str, owner: str) -> dict[str, Any]:
    """Return a ready pod of a component of KubeVirt."""
    controller = {
        "apiVersion": "apps/v1",
        "kind": owner,
        "name": name,
        "uid": f"uid-{owner}",
        "controller": True,
    }
    container = {"name": name, "resources": {"requests": {"cpu": "10m", "memory": "350Mi"}}}
    return made(
        "v1",
        "Pod",
        f"{name}-{node}",
        "kubevirt",
        metadata={
            "labels": {"kubevirt.io": name},
            "ownerReferences": [controller],
            "creationTimestamp": ago(days=40),
        },
        spec={"nodeName": node, "containers": [container]},
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )


def _nodes() -> Iterator[dict[str, Any]]:
    for name in (*WORKERS, *GPU_NODES):
        is_gpu = name in GPU_NODES
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubevirt.io/schedulable": "true",
            "node-role.kubernetes.io/worker": "",
            "topology.kubernetes.io/zone": f"zone-{'ab'[int(name[-1]) % 2]}",
        } | ({"node-role.kubernetes.io/gpu": ""} if is_gpu else {})
        room = {
            "cpu": "32",
            "memory": f"{256 if is_gpu else 192}Gi",
            "pods": "250",
            "ephemeral-storage": "200Gi",
        }
        extra = {GPU: "2"} if is_gpu else {"example.com/tape": "1"} if name == "worker-1" else {}
        ready = {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": TIME,
            "lastTransitionTime": ago(days=40),
        }
        status = {"allocatable": room | DEVICES | extra, "conditions": [ready]}
        yield made("v1", "Node", name, metadata={"labels": labels}, status=status)


def _pools() -> Iterator[dict[str, Any]]:
    group = "machineconfiguration.openshift.io/v1"
    for name, number in (("worker", len(WORKERS)), ("gpu", len(GPU_NODES))):
        selector = {"matchLabels": {f"node-role.kubernetes.io/{name}": ""}}
        status = {
            "machineCount": number,
            "updatedMachineCount": number,
            "readyMachineCount": number,
            "unavailableMachineCount": 0,
            "degradedMachineCount": 0,
        }
        spec = {"nodeSelector": selector, "maxUnavailable": 1, "paused": False}
        yield made(group, "MachineConfigPool", name, spec=spec, status=status)


def _checks() -> Iterator[dict[str, Any]]:
    conditions = [
        {"type": "Ready", "status": status, "duration": "300s"} for status in ("False", "Unknown")
    ]
    template = {
        "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
        "kind": "SelfNodeRemediationTemplate",
        "name": "restart",
        "namespace": "openshift-workload-availability",
    }
    yield made(
        template["apiVersion"],
        template["kind"],
        template["name"],
        template["namespace"],
        spec={"template": {"spec": {"remediationStrategy": "Automatic"}}},
    )
    yield made(
        "remediation.medik8s.io/v1alpha1",
        "NodeHealthCheck",
        "workers",
        spec={
            "minHealthy": "51%",
            "selector": {
                "matchExpressions": [
                    {"key": "node-role.kubernetes.io/worker", "operator": "Exists"},
                    {"key": "node-role.kubernetes.io/gpu", "operator": "DoesNotExist"},
                ]
            },
            "unhealthyConditions": conditions,
            "remediationTemplate": template,
        },
    )
    yield from _gpu_check()


def _gpu_check() -> Iterator[dict[str, Any]]:
    """Yield the Machines of the GPU nodes, and a check that may delete all of them at once."""
    for name in GPU_NODES:
        yield made(
            "machine.openshift.io/v1beta1",
            "Machine",
            name,
            "openshift-machine-api",
            metadata={
                "labels": {"machine.openshift.io/cluster-api-machineset": "gpu"},
                "ownerReferences": [
                    {
                        "apiVersion": "machine.openshift.io/v1beta1",
                        "kind": "MachineSet",
                        "name": "gpu",
                    }
                    | {"uid": "uid-gpu-set", "controller": True}
                ],
            },
            status={"phase": "Running", "nodeRef": {"kind": "Node", "name": name}},
        )
    yield made(
        "machine.openshift.io/v1beta1",
        "MachineHealthCheck",
        "gpu",
        "openshift-machine-api",
        spec={
            "maxUnhealthy": "100%",
            "selector": {"matchLabels": {"machine.openshift.io/cluster-api-machineset": "gpu"}},
            "unhealthyConditions": [
                {"type": "Ready", "status": status, "timeout": "300s"}
                for status in ("False", "Unknown")
            ],
        },
    )


def _limits() -> Iterator[dict[str, Any]]:
    """Yield a quota that leaves no room for a second pod of any of its VMs."""
    limit = {"pods": "4"}
    yield made(
        "v1",
        "ResourceQuota",
        "pods",
        "finance",
        spec={"hard": limit},
        status={"hard": limit, "used": limit},
    )


def _application() -> Iterator[dict[str, Any]]:
    """Yield a budget that allows no eviction: one of its two pods does not start."""
    labels = {"app": "checkout"}
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
    yield made("policy/v1", "PodDisruptionBudget", "checkout", "shop", spec=spec, status=status)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "checkout",
        "uid": "uid-rs",
        "controller": True,
    }
    for suffix, node, ready in (("a", "worker-2", "True"), ("b", "worker-3", "False")):
        container = {"name": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
        yield made(
            "v1",
            "Pod",
            f"checkout-{suffix}",
            "shop",
            metadata={
                "labels": labels,
                "ownerReferences": [owner],
                "creationTimestamp": ago(days=3),
            },
            spec={"nodeName": node, "containers": [container]},
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        )


def files() -> dict[Path, str]:
    """Return the snapshot, as ``virt-admit scan --save`` would write it."""
    cluster = Snapshot(objects(), ["*"], (), "v1.34.2", TIME)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, FILE.name)
        snapshots.save(cluster, file)
        return {FILE: file.read_text()}
