"""KubeVirt's objects of a VM that moves, as they look: the VMI, its launcher pods,
its migrations.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tests import builders
from tests.builders import KUBEVIRT, NAMESPACE, manifest
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

NOW = "2027-03-01T11:00:00Z"
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"} | {
    f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net", "vhost-vsock")
}


def ago(seconds: float) -> str:
    """Return the time so many seconds before ``NOW``."""
    now = clock.instant(NOW)
    assert isinstance(now, datetime)
    return clock.stamp(now - timedelta(seconds=seconds)) or ""


def node(name: str, **spec: Any) -> Object:
    return builders.node(name, allocatable=dict(ROOM), **spec)


def vmi(name: str = "db", on: str = "a", **fields: Any) -> Object:
    """Return a VMI that runs and can migrate; keywords are fields of its status, and ``spec``."""
    spec = {
        "evictionStrategy": "LiveMigrate",
        "domain": {"cpu": {"model": "host-model"}, "devices": {}, "memory": {"guest": "4Gi"}},
    } | fields.pop("spec", {})
    reported = "LiveMigratable" if fields.pop("reported", True) else "Ready"
    conditions = [{"type": reported, "status": "True"}, *fields.pop("conditions", [])]
    metadata = {
        "uid": f"uid-{name}",
        "creationTimestamp": ago(90_000),
        "ownerReferences": [
            {"apiVersion": KUBEVIRT, "kind": "VirtualMachine", "name": name, "controller": True}
        ],
    } | fields.pop("metadata", {})
    status = {"phase": "Running", "nodeName": on, "conditions": conditions} | fields
    return manifest(
        KUBEVIRT,
        "VirtualMachineInstance",
        name,
        NAMESPACE,
        metadata=metadata,
        spec=spec,
        status=status,
    )


def vm(name: str = "db") -> Object:
    return builders.vm(name=name, runStrategy="Always")


def launcher(
    of: str = "db", on: str = "a", suffix: str = "1", *, job: str = "", **fields: Any
) -> Object:
    """Return a launcher pod; ``job`` makes it the target pod of a migration;
    keywords are fields of the status.
    """
    phase, ready = fields.pop("phase", "Running"), fields.pop("ready", True)
    conditions = fields.pop("conditions", [{"type": "Ready", "status": str(ready)}])
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": f"uid-{of}"}
    metadata = {
        "uid": f"pod-{of}-{suffix}",
        "creationTimestamp": ago(fields.pop("age", 80_000)),
        "labels": labels | ({"kubevirt.io/migrationJobUID": job} if job else {}),
        "ownerReferences": [
            {
                "apiVersion": KUBEVIRT,
                "kind": "VirtualMachineInstance",
                "name": of,
                "controller": True,
            }
        ],
    } | fields.pop("metadata", {})
    spec = {"nodeName": on} if on else {}
    status = {"phase": phase, "conditions": conditions} | fields
    return manifest(
        "v1",
        "Pod",
        f"virt-launcher-{of}-{suffix}",
        NAMESPACE,
        metadata=metadata,
        spec=spec,
        status=status,
    )


def attachment(target: Object, *, ready: bool) -> Object:
    """Return the pod that attaches the volumes of a target pod."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": target.name,
        "uid": target.metadata["uid"].text,
    }
    metadata = {
        "labels": {"kubevirt.io": "hotplug-disk"},
        "ownerReferences": [owner | {"controller": True}],
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    spec = {"nodeName": target.at("spec", "nodeName").text}
    return manifest(
        "v1", "Pod", "hp-volume-db", NAMESPACE, metadata=metadata, spec=spec, status=status
    )


def migration(
    name: str = "evacuation-1",
    phase: str = "Pending",
    *,
    of: str = "db",
    age: float = 30,
    drain: bool = True,
    since: Mapping[str, float] | None = None,
    conditions: tuple[str, ...] = (),
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **state: Any,
) -> Object:
    """Return a migration; ``since`` are the ages of its phases,
    other keywords are its ``migrationState``.
    """
    stamps = [
        {"phase": key, "phaseTransitionTimestamp": ago(value)}
        for key, value in (since or {}).items()
    ]
    status: dict[str, Any] = {"phase": phase, "phaseTransitionTimestamps": stamps}
    if conditions:
        status["conditions"] = [
            {"type": kind, "status": "True", "message": f"says {kind}"} for kind in conditions
        ]
    if state:
        status["migrationState"] = {"migrationUid": f"uid-{name}"} | state
    data = {
        "uid": f"uid-{name}",
        "creationTimestamp": ago(age),
        "annotations": {"kubevirt.io/evacuationMigration": "a"} if drain else {},
    } | dict(metadata or {})
    return manifest(
        KUBEVIRT,
        "VirtualMachineInstanceMigration",
        name,
        NAMESPACE,
        metadata=data,
        spec={"vmiName": of} | dict(spec or {}),
        status=status,
    )


def failed(
    number: int,
    reason: str,
    *,
    target: str = "b",
    age: float = 4000,
    lasted: float = 60,
    **more: Any,
) -> Object:
    """Return a migration of a drain that failed."""
    name = f"evacuation-0{number}"
    return migration(
        name,
        "Failed",
        age=age + 30,
        since={"Pending": age + 30, "Running": age + lasted, "Failed": age},
        sourceNode="a",
        targetNode=target,
        failed=True,
        completed=True,
        failureReason=reason,
        startTimestamp=ago(age + lasted),
        endTimestamp=ago(age),
        **more,
    )


def cluster(
    *objects: Object,
    time: str | None = NOW,
    nodes: tuple[str, ...] = ("a", "b", "c"),
    **kubevirt: Any,
) -> Snapshot:
    """Return a cluster with these nodes, of which ``a`` is cordoned;
    keywords are KubeVirt's migration settings.
    """
    own = {each.name for each in objects if each.kind == "Node"}
    shown = [node(name, unschedulable=name == "a") for name in nodes if name not in own]
    owners = [vm(each.name) for each in objects if each.kind == "VirtualMachineInstance"]
    settings = {"migrations": kubevirt}
    status = {"observedKubeVirtVersion": "v1.9.0"}
    setting = (
        []
        if any(each.kind == "KubeVirt" for each in objects)
        else [builders.kubevirt(settings, status=status)]
    )
    return Snapshot([*shown, *owners, *setting, *objects], ["*"], time=time)
