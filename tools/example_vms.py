"""The VMs of the example of a cluster: each with its claim, its volume,
its VMI and its launcher pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from virt_admit.model.kubernetes import clock

TIME: Final = "2027-03-01T11:00:00Z"
KUBEVIRT: Final = "kubevirt.io/v1"
WORKERS: Final = tuple(f"worker-{number}" for number in range(1, 6))
GPU_NODES: Final = ("gpu-1", "gpu-2")
DEVICES: Final = {
    f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net", "vhost-vsock")
}
GPU: Final = "nvidia.com/A100"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleVm:
    """One VM: where it runs, and what is special about it."""

    owner: str
    name: str
    node: str
    memory: int = 4
    """GiB."""
    strategy: str = "LiveMigrate"
    obstacle: str = ""
    """The reason of ``LiveMigratable: False``; empty: it can migrate."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    run_strategy: str = "Always"


def _ordinary() -> Iterator[ExampleVm]:
    """Yield the 31 VMs that can move, spread over the nodes."""
    numbers = {"shop": 12, "finance": 4, "build": 8, "intranet": 7}
    places = (*WORKERS, *WORKERS, *GPU_NODES)
    position = 0
    for owner, number in numbers.items():
        for index in range(number):
            node = "worker-3" if owner == "finance" else places[position % len(places)]
            strategy = "LiveMigrateIfPossible" if owner == "build" else "LiveMigrate"
            yield ExampleVm(
                owner=owner,
                name=f"{owner}-{index + 1:02}",
                node=node,
                memory=(4, 8, 16)[index % 3],
                strategy=strategy,
            )
            position += 1


_HOST_DEVICE: Final = {
    "domain": {"devices": {"hostDevices": [{"name": "tape", "deviceName": "example.com/tape"}]}}
}
_GPU: Final = {"domain": {"devices": {"gpus": [{"name": "gpu", "deviceName": GPU}]}}}
_MIGRATION: Final = "kubevirt-evacuation-db"
_STATE: Final = {
    "migrationUid": f"uid-{_MIGRATION}",
    "sourceNode": "worker-2",
    "targetNode": "worker-4",
    "startTimestamp": "2027-03-01T04:40:00Z",
    "mode": "PreCopy",
}

SPECIAL: Final = (
    ExampleVm(
        owner="media",
        name="tape-robot",
        node="worker-1",
        obstacle="HostDeviceNotLiveMigratable",
        spec=_HOST_DEVICE,
    ),
    ExampleVm(
        owner="shop",
        name="db",
        node="worker-2",
        memory=64,
        status={"evacuationNodeName": "worker-2", "migrationState": _STATE},
    ),
    ExampleVm(owner="media", name="archive", node="worker-4", obstacle="DisksNotLiveMigratable"),
    ExampleVm(
        owner="intranet",
        name="licence-server",
        node="worker-5",
        spec={"nodeSelector": {"kubernetes.io/hostname": "worker-5"}},
    ),
    ExampleVm(
        owner="build",
        name="runner",
        node="worker-5",
        strategy="None",
        run_strategy="RerunOnFailure",
    ),
    ExampleVm(
        owner="research",
        name="train",
        node="gpu-1",
        memory=64,
        obstacle="HostDeviceNotLiveMigratable",
        spec=_GPU,
    ),
    ExampleVm(owner="research", name="notebook", node="gpu-1", strategy="None", spec=_GPU),
    ExampleVm(owner="research", name="simulation", node="gpu-2", memory=180),
    ExampleVm(
        owner="research", name="results", node="gpu-2", memory=8, strategy="LiveMigrateIfPossible"
    ),
)


def made(
    api_version: str, kind: str, name: str, namespace: str = "", **fields: Any
) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}"} | (
        {"namespace": namespace} if namespace else {}
    )
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata | fields.pop("metadata", {}),
        **fields,
    }


def workload() -> Iterator[dict[str, Any]]:
    """Yield for each VM its claim, the VM, its VMI and its launcher pod."""
    for vm in (*_ordinary(), *SPECIAL):
        mode = "ReadWriteOnce" if vm.obstacle == "DisksNotLiveMigratable" else "ReadWriteMany"
        yield made(
            "v1",
            "PersistentVolumeClaim",
            f"{vm.name}-root",
            vm.owner,
            metadata={"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            spec={
                "accessModes": [mode],
                "resources": {"requests": {"storage": "40Gi"}},
                "storageClassName": "ceph-block",
                "volumeMode": "Block",
                "volumeName": f"pvc-{vm.name}",
            },
            status={"phase": "Bound", "accessModes": [mode]},
        )
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": vm.owner,
            "name": f"{vm.name}-root",
        }
        yield made(
            "v1",
            "PersistentVolume",
            f"pvc-{vm.name}",
            spec={
                "accessModes": [mode],
                "capacity": {"storage": "40Gi"},
                "claimRef": claim | {"uid": f"uid-{vm.name}-root"},
                "csi": {"driver": "rbd.csi.ceph.com", "volumeHandle": vm.name},
                "storageClassName": "ceph-block",
                "volumeMode": "Block",
            },
            status={"phase": "Bound"},
        )
        yield from (_vm(vm), _vmi(vm), _launcher(vm))


def _template(vm: ExampleVm) -> dict[str, Any]:
    special = dict(vm.spec.get("domain", {}).get("devices", {}))
    devices = {
        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
        "interfaces": [{"name": "default", "masquerade": {}}],
    }
    others = {key: value for key, value in vm.spec.items() if key != "domain"}
    return {
        "evictionStrategy": vm.strategy,
        "domain": {
            "cpu": {"cores": 2},
            "memory": {"guest": f"{vm.memory}Gi"},
            "devices": devices | special,
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": f"{vm.name}-root"}}],
        "terminationGracePeriodSeconds": 180,
    } | others


def _vm(vm: ExampleVm) -> dict[str, Any]:
    labels = {"team": vm.owner}
    spec = {
        "runStrategy": vm.run_strategy,
        "template": {"metadata": {"labels": labels}, "spec": _template(vm)},
    }
    metadata = {"labels": labels, "creationTimestamp": ago(days=120)}
    status = {"printableStatus": "Running", "ready": True}
    return made(
        KUBEVIRT, "VirtualMachine", vm.name, vm.owner, metadata=metadata, spec=spec, status=status
    )


def _vmi(vm: ExampleVm) -> dict[str, Any]:
    owner = {
        "apiVersion": KUBEVIRT,
        "kind": "VirtualMachine",
        "name": vm.name,
        "uid": f"uid-{vm.name}",
    }
    migratable: dict[str, Any] = {"type": "LiveMigratable", "status": str(not vm.obstacle)}
    if vm.obstacle:
        migratable |= {"reason": vm.obstacle, "message": "cannot migrate VMI"}
    status = {
        "phase": "Running",
        "nodeName": vm.node,
        "conditions": [{"type": "Ready", "status": "True"}, migratable],
        "activePods": {_launcher_uid(vm): vm.node},
    } | dict(vm.status)
    metadata = {
        "uid": f"uid-vmi-{vm.name}",
        "labels": {"team": vm.owner, "kubevirt.io/nodeName": vm.node},
        "ownerReferences": [owner | {"controller": True}],
        "creationTimestamp": ago(days=30),
    }
    return made(
        KUBEVIRT,
        "VirtualMachineInstance",
        vm.name,
        vm.owner,
        metadata=metadata,
        spec=_template(vm),
        status=status,
    )


def _launcher_uid(vm: ExampleVm) -> str:
    return f"uid-pod-{vm.name}"


def _launcher(vm: ExampleVm, node: str = "", suffix: str = "x1", **labels: str) -> dict[str, Any]:
    owner = {
        "apiVersion": KUBEVIRT,
        "kind": "VirtualMachineInstance",
        "name": vm.name,
        "uid": f"uid-vmi-{vm.name}",
    }
    mebibytes = vm.memory * 1024 + 300
    requests = {"cpu": "200m", "memory": f"{mebibytes}Mi", "ephemeral-storage": "50M"} | {
        name: "1" for name in DEVICES if not name.endswith("vsock")
    }
    if vm.spec == _GPU:
        requests |= {GPU: "1"}
    if vm.spec == _HOST_DEVICE:
        requests |= {"example.com/tape": "1"}
    metadata = {
        "uid": _launcher_uid(vm) + ("" if suffix == "x1" else f"-{suffix}"),
        "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": f"uid-vmi-{vm.name}"}
        | labels,
        "ownerReferences": [owner | {"controller": True}],
        "creationTimestamp": ago(days=30) if suffix == "x1" else ago(minutes=381),
    }
    return made(
        "v1",
        "Pod",
        f"virt-launcher-{vm.name}-{suffix}",
        vm.owner,
        metadata=metadata,
        spec={
            "nodeName": node or vm.node,
            "containers": [{"name": "compute", "resources": {"requests": requests}}],
            "nodeSelector": {"kubevirt.io/schedulable": "true", **vm.spec.get("nodeSelector", {})},
        },
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )


def stuck_migration() -> Iterator[dict[str, Any]]:
    """Yield a migration that copies memory for six hours, and its target pod."""
    vm = next(each for each in SPECIAL if each.name == "db")
    uid = f"uid-{_MIGRATION}"
    yield made(
        KUBEVIRT,
        "VirtualMachineInstanceMigration",
        _MIGRATION,
        vm.owner,
        metadata={
            "uid": uid,
            "creationTimestamp": ago(minutes=382),
            "annotations": {"kubevirt.io/evacuationMigration": vm.node},
            "labels": {"kubevirt.io/vmi-name": vm.name},
        },
        spec={"vmiName": vm.name},
        status={
            "phase": "Running",
            "migrationState": dict(_STATE),
            "phaseTransitionTimestamps": [
                {"phase": "Running", "phaseTransitionTimestamp": _STATE["startTimestamp"]}
            ],
        },
    )
    yield _launcher(vm, "worker-4", "x2", **{"kubevirt.io/migrationJobUID": uid})


def ago(**length: int) -> str:
    now = clock.instant(TIME)
    assert isinstance(now, datetime)
    return clock.stamp(now - timedelta(**length)) or ""
