"""Clusters that lose nodes: nodes of 64Gi, VMs with launcher pods,
health checks with remediators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from virt_admit.forecasts.outage.outages import Outages, Question, outages
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

Manifest = dict[str, Any]

READY = [{"type": "Ready", "status": "True"}]
MASTER = {"node-role.kubernetes.io/control-plane": ""}


def manifest(version: str, kind: str, name: str, namespace: str = "", /, **fields: Any) -> Manifest:
    metadata = (
        {"name": name}
        | ({"namespace": namespace} if namespace else {})
        | fields.pop("metadata", {})
    )
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def node(
    name: str, memory: str = "64Gi", *, hosts: bool = True, ready: str = "True", **labels: str
) -> Manifest:
    """Return a worker; ``zone=`` names its zone."""
    marks = {"kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": ""}
    if hosts:
        marks["kubevirt.io/schedulable"] = "true"
    if "zone" in labels:
        marks["topology.kubernetes.io/zone"] = labels.pop("zone")
    size = {"memory": memory, "cpu": "32", "pods": "110"}
    size |= {f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net")}
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"labels": marks | labels},
        status={"allocatable": size, "conditions": [{"type": "Ready", "status": ready}]},
    )


def master(name: str, **labels: str) -> Manifest:
    found = node(name, hosts=False, **labels)
    found["metadata"]["labels"] |= MASTER
    del found["metadata"]["labels"]["node-role.kubernetes.io/worker"]
    found["spec"] = {
        "taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    }
    return found


def _owner(kind: str, name: str, uid: str) -> list[Manifest]:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": kind, "name": name}
    return [owner | {"controller": True, "uid": uid}]


def _launcher(name: str) -> Manifest:
    """Return the metadata of the virt-launcher pod of a VM."""
    return {
        "labels": {
            "kubevirt.io": "virt-launcher",
            "kubevirt.io/created-by": f"vmi-{name}",
            "vm.kubevirt.io/name": name,
        },
        "ownerReferences": _owner("VirtualMachineInstance", name, f"vmi-{name}"),
    }


def vm(
    name: str,
    on: str,
    memory: str = "10Gi",
    *,
    strategy: str | None = "Always",
    priority: int = 0,
    status: Manifest | None = None,
    **spec: Any,
) -> list[Manifest]:
    """Return a VM, its VMI and its launcher pod; without a strategy the VMI has no owner."""
    spec = {"domain": {"devices": {}}, "evictionStrategy": "None"} | spec
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in spec.get("volumes", ())
        if "persistentVolumeClaim" in volume
    ]
    owner = _owner("VirtualMachine", name, f"vm-{name}")
    meta = {"uid": f"vmi-{name}"} | ({"ownerReferences": owner} if strategy is not None else {})
    conditions = [{"type": "LiveMigratable", "status": "True"}, {"type": "Ready", "status": "True"}]
    status = {"nodeName": on, "phase": "Running", "conditions": conditions} | (status or {})
    made = [
        manifest(
            "kubevirt.io/v1",
            "VirtualMachineInstance",
            name,
            "shop",
            metadata=meta,
            spec=spec,
            status=status,
        )
    ]
    if strategy is not None:
        made.append(
            manifest(
                "kubevirt.io/v1",
                "VirtualMachine",
                name,
                "shop",
                spec={"runStrategy": strategy, "template": {"spec": spec}},
            )
        )
    made.append(
        pod(
            f"virt-launcher-{name}-x",
            on,
            memory,
            metadata=_launcher(name),
            claims=claims,
            priority=priority,
        )
    )
    return made


def pod(
    name: str,
    on: str,
    memory: str,
    *,
    metadata: Manifest | None = None,
    claims: Any = (),
    **spec: Any,
) -> Manifest:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    spec = {"priority": 0} | spec
    return manifest(
        "v1",
        "Pod",
        name,
        "shop",
        metadata=metadata or {},
        spec={
            "nodeName": on,
            "containers": [
                {"name": "main", "resources": {"requests": {"memory": memory, "cpu": "100m"}}}
            ],
            "volumes": volumes,
            **spec,
        },
        status={"phase": "Running"},
    )


def deployed(name: str, on: str, memory: str, kind: str = "ReplicaSet", **spec: Any) -> Manifest:
    """Return a pod of a controller."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "controller": True,
        "uid": f"rs-{name}",
    }
    return pod(
        f"{name}-1",
        on,
        memory,
        metadata={"labels": {"app": name}, "ownerReferences": [owner]},
        **spec,
    )


def filler(on: str, memory: str) -> Manifest:
    """Return a pod that stays on its node."""
    return deployed(f"agent-{on}", on, memory, "DaemonSet")


def claim(name: str, mode: str = "ReadWriteOnce", **volume: Any) -> list[Manifest]:
    """Return a claim that is bound to a CSI volume."""
    source = volume or {"csi": {"driver": "block.example.com", "volumeHandle": name}}
    return [
        manifest(
            "v1",
            "PersistentVolumeClaim",
            name,
            "shop",
            spec={"accessModes": [mode], "volumeName": f"pv-{name}"},
            status={"phase": "Bound"},
        ),
        manifest("v1", "PersistentVolume", f"pv-{name}", spec={"accessModes": [mode], **source}),
    ]


def disk(name: str) -> Manifest:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


REMEDIATION = "self-node-remediation.medik8s.io/v1alpha1"
FENCING = "fence-agents-remediation.medik8s.io/v1alpha1"


def nhc(
    remediator: str = "SelfNodeRemediation",
    *,
    minimum: Any = "51%",
    name: str = "workers",
    **spec: Any,
) -> list[Manifest]:
    """Return a NodeHealthCheck of all workers with its remediation template."""
    version = REMEDIATION if remediator.startswith("Self") else FENCING
    kind = f"{remediator}Template"
    reference = {
        "apiVersion": version,
        "kind": kind,
        "name": f"{name}-template",
        "namespace": "medik8s",
    }
    check = {
        "selector": {
            "matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]
        },
        "minHealthy": minimum,
        "remediationTemplate": reference,
        **spec,
    }
    fences: Manifest = {"agent": "fence_aws", "sharedparameters": {"--plug": "{{.NodeName}}"}}
    template = {"template": {"spec": {} if remediator.startswith("Self") else fences}}
    return [
        manifest("remediation.medik8s.io/v1alpha1", "NodeHealthCheck", name, spec=check),
        manifest(version, kind, f"{name}-template", "medik8s", spec=template),
    ]


def machines(*nodes: str, timeout: str = "60s", limit: Any = "100%") -> list[Manifest]:
    """Return a MachineHealthCheck of OpenShift with a Machine of a MachineSet for each node."""
    owner = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "name": "workers",
        "controller": True,
        "uid": "ms",
    }
    made = [
        manifest(
            "machine.openshift.io/v1beta1",
            "Machine",
            f"machine-{name}",
            "openshift-machine-api",
            metadata={"labels": {"role": "worker"}, "ownerReferences": [owner]},
            spec={},
            status={"nodeRef": {"kind": "Node", "name": name}, "phase": "Running"},
        )
        for name in nodes
    ]
    conditions = [
        {"type": "Ready", "status": status, "timeout": timeout} for status in ("Unknown", "False")
    ]
    check = {
        "selector": {"matchLabels": {"role": "worker"}},
        "maxUnhealthy": limit,
        "unhealthyConditions": conditions,
    }
    made.append(
        manifest(
            "machine.openshift.io/v1beta1",
            "MachineHealthCheck",
            "workers",
            "openshift-machine-api",
            spec=check,
        )
    )
    return made


NAMESPACES = [manifest("v1", "Namespace", name) for name in ("shop", "medik8s")]
KUBEVIRT = manifest(
    "kubevirt.io/v1",
    "KubeVirt",
    "kubevirt",
    "kubevirt",
    spec={"configuration": {}},
    status={"observedKubeVirtVersion": "v1.8.0"},
)


def snapshot(
    *parts: Any,
    unreadable: tuple[str, ...] = (),
    version: str | None = "v1.34.0",
    kubevirt: bool = True,
    time: str | None = None,
) -> Snapshot:
    """Return a cluster of which everything can be read but these kinds."""
    objects = [*NAMESPACES, *([KUBEVIRT] if kubevirt else []), *flat(parts)]
    return Snapshot(
        map(Object, objects), ["*"], unreadable=unreadable, server_version=version, time=time
    )


def flat(parts: Iterable[Any]) -> Iterator[Manifest]:
    for part in parts:
        if isinstance(part, dict):
            yield part
        else:
            yield from flat(part)


def lose(cluster: Snapshot, *nodes: str) -> Outages:
    return outages(Question(nodes=nodes), cluster)
