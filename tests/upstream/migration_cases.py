"""Random clusters whose nodes are updated: at most 6 nodes and 30 VMs; a seed names a case."""

from __future__ import annotations

import random
from typing import Any, Final

NAMESPACE: Final = "shop"
_MODEL: Final = "Skylake"
_GIB: Final = 1024
CLUSTER: Final = "virt-admit.io/cluster"
"""The label of the nodes of one of several clusters on an API server."""
DEADLINE: Final = 3600
"""Virtual seconds after which a roll-out that has not ended is stuck."""


def case(seed: int, cluster: str = "") -> dict[str, Any]:
    """Return a case for ``main.go``.

    One in four is too full to be updated, or has a VM that fits nowhere else.

    With a name of a cluster, it can share an API server with others: it has its own namespace and
    labelled nodes.
    """
    chance = random.Random(seed)
    prefix = cluster and f"{cluster}-"
    nodes = [f"{prefix}node{number}" for number in range(chance.randint(2, 6))]
    room = chance.choice((8, 12, 16))
    vms = _vms(chance, nodes, room)
    order = chance.sample(nodes, len(nodes))
    found = {
        "kubevirt": kubevirt(chance.choice((1, 2, 3, 5)), chance.choice((1, 1, 2, 3))),
        "nodes": [node(name, room * _GIB, age) for age, name in enumerate(order)],
        "vmis": [vmi(name, where, size, 2 + chance.randrange(5)) for name, where, size in vms],
        "pods": [],
        "pools": [{"nodes": order, "capacity": chance.choice((1, 1, 1, 2))}],
        "reboot": chance.choice((0, 7, 20)),
        "deadline": DEADLINE,
    }
    return _shared(found, cluster) if cluster else found


def _shared(given: dict[str, Any], cluster: str) -> dict[str, Any]:
    for each in given["nodes"]:
        each["metadata"]["labels"][CLUSTER] = cluster
    for each in given["vmis"]:
        each["metadata"]["namespace"] = cluster
        each["spec"]["nodeSelector"] = {CLUSTER: cluster}
    return given | {"selector": f"{CLUSTER}={cluster}", "namespace": cluster}


def _vms(chance: random.Random, nodes: list[str], room: int) -> list[tuple[str, str, int]]:
    """Return name, node and GiB of each VM.

    All have one size, so that who goes first does not decide who fits.
    """
    size = chance.choice((1, 2))
    slots = int(room / (size + 0.5))
    full = chance.random() < 0.25
    slots = min(slots, 30 // len(nodes))
    most = slots if full else max(1, slots * (len(nodes) - 2) // len(nodes))
    found: list[tuple[str, str, int]] = []
    for where in nodes:
        for _ in range(chance.randint(most - 1 if full else 0, most)):
            found.append((f"vm{len(found):02}", where, size))
    return found


def kubevirt(cluster: int, outbound: int) -> dict[str, Any]:
    """Return a KubeVirt object with these limits."""
    limits = {
        "parallelMigrationsPerCluster": cluster,
        "parallelOutboundMigrationsPerNode": outbound,
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"migrations": limits, "evictionStrategy": "LiveMigrate"}},
        "status": {"phase": "Deployed", "defaultArchitecture": "amd64"},
    }


def node(name: str, mebibytes: int, age: int) -> dict[str, Any]:
    """Return a Node that runs VMs; those with a smaller age are older."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubevirt.io/schedulable": "true",
        f"cpu-model.node.kubevirt.io/{_MODEL}": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
        "machine-type.node.kubevirt.io/q35": "true",
    }
    devices = {f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net")}
    size = {
        "cpu": "64",
        "memory": f"{mebibytes}Mi",
        "pods": "110",
        "ephemeral-storage": "1Ti",
        **devices,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "creationTimestamp": f"2026-01-01T00:00:{age:02}Z",
        },
        "spec": {},
        "status": {
            "allocatable": size,
            "capacity": size,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": None,
                    "lastTransitionTime": None,
                }
            ],
        },
    }


def vmi(name: str, where: str, gibibytes: int, seconds: int) -> dict[str, Any]:
    """Return a running VMI whose last migration took so many seconds, as the next one will."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "labels": {"kubevirt.io/nodeName": where},
            "annotations": {"kubevirt.io/nonroot": "true"},
        },
        "spec": {
            "evictionStrategy": "LiveMigrate",
            "domain": {
                "cpu": {"cores": 1, "model": _MODEL},
                "memory": {"guest": f"{gibibytes}Gi"},
                "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            },
            "networks": [{"name": "default", "pod": {}}],
        },
        "status": {
            "phase": "Running",
            "nodeName": where,
            "runtimeUser": 107,
            "selinuxContext": "none",
            "machine": {"type": "q35"},
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
                for kind in ("Ready", "LiveMigratable")
            ],
            "migrationState": {
                "startTimestamp": "2026-01-01T00:00:00Z",
                "endTimestamp": f"2026-01-01T00:00:{seconds:02}Z",
                "completed": True,
            },
        },
    }
