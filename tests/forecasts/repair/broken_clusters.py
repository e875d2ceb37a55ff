"""Clusters of which no node can be drained, each for one cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

KUBEVIRT = "kubevirt.io/v1"
ROOM = {"cpu": "16", "memory": "64Gi", "pods": "250", "ephemeral-storage": "100Gi"} | {
    f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net", "vhost-vsock")
}
MASQUERADE = {"networks": [{"name": "default", "pod": {}}]}
INTERFACES = [{"name": "default", "masquerade": {}}]


def node(
    name: str, labels: Mapping[str, str] | None = None, room: Mapping[str, str] = ROOM, **spec: Any
) -> Object:
    own = {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
    }
    status = {"allocatable": dict(room), "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest(
        "v1", "Node", name, metadata={"labels": own | dict(labels or {})}, spec=spec, status=status
    )


def kubevirt(
    settings: Mapping[str, Any] | None = None,
    methods: tuple[str, ...] = ("LiveMigrate",),
    version: str = "v1.8.0",
) -> Object:
    return manifest(
        KUBEVIRT,
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        spec={
            "configuration": {
                "network": {"defaultNetworkInterface": "masquerade"},
                "developerConfiguration": {"featureGates": ["HostDevices"]},
            }
            | dict(settings or {}),
            "workloadUpdateStrategy": {"workloadUpdateMethods": list(methods)},
        },
        status={"observedKubeVirtVersion": version, "defaultArchitecture": "amd64"},
    )


def vm(
    name: str = "db",
    on: str = "a",
    *,
    spec: Mapping[str, Any] | None = None,
    own: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    reason: str = "",
    strategy: str = "LiveMigrate",
    namespace: str = "shop",
    run: str = "Always",
    memory: str = "4Gi",
    metadata: Mapping[str, Any] | None = None,
    vmi_status: Mapping[str, Any] | None = None,
) -> list[Object]:
    """Return a running VM: VirtualMachine, VMI and launcher pod.

    ``reason``: why it cannot migrate.
    """
    domain = {"cpu": {"cores": 1, "model": "host-model"}, "memory": {"guest": memory}}
    template = {
        "evictionStrategy": strategy,
        "domain": domain | {"devices": {"interfaces": INTERFACES}},
        **MASQUERADE,
    } | dict(spec or {})
    condition = {"type": "LiveMigratable", "status": "False" if reason else "True"}
    owner = {"apiVersion": KUBEVIRT, "kind": "VirtualMachine", "name": name, "controller": True}
    vm_spec = {
        "runStrategy": run,
        "template": {"metadata": {"labels": {"app": name}}, "spec": template},
    }
    conditions = [condition | ({"reason": reason} if reason else {})]
    return [
        manifest(
            KUBEVIRT,
            "VirtualMachine",
            name,
            namespace,
            metadata=dict(metadata or {}),
            spec=vm_spec | dict(own or {}),
            status=dict(status or {}) | {"ready": True},
        ),
        manifest(
            KUBEVIRT,
            "VirtualMachineInstance",
            name,
            namespace,
            metadata={"uid": f"uid-{name}", "ownerReferences": [owner], "labels": {"app": name}},
            spec=template,
            status={"phase": "Running", "nodeName": on, "conditions": conditions}
            | dict(vmi_status or {}),
        ),
        launcher(name, namespace, on, memory, template),
    ]


def launcher(
    name: str, namespace: str, on: str, memory: str, template: Mapping[str, Any]
) -> Object:
    """Return the launcher pod of a VM."""
    labels = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": f"uid-{name}",
        "vm.kubevirt.io/name": name,
    }
    requests = {"cpu": "100m", "memory": memory}
    sources = [
        volume.get("persistentVolumeClaim") or volume.get("dataVolume") or {}
        for volume in template.get("volumes", [])
    ]
    claims = [
        {"persistentVolumeClaim": {"claimName": each.get("claimName") or each.get("name")}}
        for each in sources
    ]
    metadata = {
        "labels": labels | {"app": name},
        "annotations": {"kubevirt.io/domain": name},
        "ownerReferences": [{"kind": "VirtualMachineInstance", "name": name, "controller": True}],
    }
    spec = {
        "nodeName": on,
        "priority": 0,
        "containers": [
            {"name": "compute", "resources": {"requests": requests, "limits": requests}}
        ],
        "volumes": claims,
        **{
            key: template[key]
            for key in ("nodeSelector", "affinity", "tolerations")
            if key in template
        },
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest(
        "v1",
        "Pod",
        f"virt-launcher-{name}-x",
        namespace,
        metadata=metadata,
        spec=spec,
        status=status,
    )


def claim(
    name: str,
    mode: str = "ReadWriteOnce",
    size: str = "10Gi",
    storage_class: str = "local",
    volume_mode: str = "Block",
    namespace: str = "shop",
    **volume: Any,
) -> list[Object]:
    spec = {
        "accessModes": [mode],
        "volumeName": f"pv-{name}",
        "storageClassName": storage_class,
        "volumeMode": volume_mode,
        "resources": {"requests": {"storage": size}},
    }
    return [
        manifest(
            "v1",
            "PersistentVolumeClaim",
            name,
            namespace,
            spec=spec,
            status={"phase": "Bound", "capacity": {"storage": size}},
        ),
        manifest(
            "v1",
            "PersistentVolume",
            f"pv-{name}",
            spec={"csi": {"driver": "x", "volumeHandle": name}} | volume,
        ),
    ]


def storage_class(
    name: str = "ceph", *modes: str, volume_mode: str = "Block", **annotations: str
) -> list[Object]:
    sets = [
        {"accessModes": [mode], "volumeMode": volume_mode} for mode in modes or ("ReadWriteMany",)
    ]
    return [
        manifest(
            "storage.k8s.io/v1",
            "StorageClass",
            name,
            metadata={"annotations": annotations},
            provisioner="ceph.example.com",
        ),
        manifest(
            "cdi.kubevirt.io/v1beta1",
            "StorageProfile",
            name,
            spec={},
            status={"storageClass": name, "claimPropertySets": sets},
        ),
    ]


def disk(claim_name: str = "root") -> dict[str, Any]:
    return {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim_name}}]}


def namespace(name: str = "shop") -> Object:
    return manifest(
        "v1", "Namespace", name, metadata={"labels": {"kubernetes.io/metadata.name": name}}
    )


def cluster(
    *objects: Any,
    nodes: tuple[str, ...] = ("a", "b"),
    settings: Mapping[str, Any] | None = None,
    unreadable: tuple[str, ...] = (),
) -> Snapshot:
    flat = [each for group in objects for each in (group if isinstance(group, list) else [group])]
    own = {each.name for each in flat if each.kind == "Node"}
    made = [node(name) for name in nodes if name not in own]
    if not any(each.kind == "KubeVirt" for each in flat):
        made.append(kubevirt(settings))
    made.append(namespace())
    return Snapshot([*made, *flat], ["*"], unreadable, time="2027-03-01T11:00:00Z")
