"""KubeVirt as virt-operator deploys it, and virtual machines as its controllers write them."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from .parts import (
    CONTROL_PLANE,
    KVM,
    Object,
    ago,
    api_service,
    budget,
    conditions,
    deployment,
    obj,
    owner,
    pod,
    service,
    webhook,
)

ANY = ("CREATE", "UPDATE")
INFRA = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": f"node-role.kubernetes.io/{role}", "operator": "Exists"}
                        ]
                    }
                    for role in ("control-plane", "master")
                ]
            }
        }
    },
    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}, *CONTROL_PLANE],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "priorityClassName": "kubevirt-cluster-critical",
    "priority": 1_000_000_000,
}


def kubevirt(
    release: tuple[int, int],
    control_plane: Iterable[str],
    nodes: Iterable[str],
    *,
    namespace: str = "kubevirt",
    configuration: Mapping[str, Any] = {},
    infra: Mapping[str, Any] = INFRA,
    managed: bool = False,
) -> list[Object]:
    """Return an installation at rest: components on up to two of the control-plane nodes.

    Args:
        managed: whether HyperConverged writes the KubeVirt object.
    """
    places = list(control_plane)[:2]
    found = [_custom_resource(release, namespace, configuration, managed, single=len(places) == 1)]
    for name in ("virt-operator", "virt-api", "virt-controller"):
        found += deployment(name, namespace, places, {"kubevirt.io": name}, spec=infra)
        if name != "virt-operator" and len(places) > 1:
            chosen = {"kubevirt.io": name}
            found.append(
                budget(f"{name}-pdb", namespace, chosen, len(places), available=len(places) - 1)
            )
    found += deployment(
        "virt-handler", namespace, nodes, {"kubevirt.io": "virt-handler"}, kind="DaemonSet"
    )
    found += service("virt-api", namespace, {"kubevirt.io": "virt-api"}, places)
    found += service(
        "kubevirt-operator-webhook", namespace, {"kubevirt.io": "virt-operator"}, places
    )
    renewed = ago(seconds=3)[:-1] + ".000000Z"
    lease = {
        "holderIdentity": "virt-controller-x0",
        "leaseDurationSeconds": 15,
        "renewTime": renewed,
    }
    found.append(obj("Lease", "coordination.k8s.io/v1", "virt-controller", namespace, spec=lease))
    target = (namespace, "virt-api")
    return (
        found
        + _webhooks(release, target)
        + [api_service(each, "subresources.kubevirt.io", target) for each in ("v1", "v1alpha3")]
    )


def _custom_resource(
    release: tuple[int, int],
    namespace: str,
    configuration: Mapping[str, Any],
    managed: bool,
    *,
    single: bool,
) -> Object:
    version = f"v{release[0]}.{release[1]}.0"
    updates = {"workloadUpdateMethods": ["LiveMigrate"]}
    spec: Object = {
        "configuration": {"developerConfiguration": {}, **configuration},
        "workloadUpdateStrategy": updates,
    }
    if single:
        spec["infra"] = {"replicas": 1}
    status: Object = {
        "phase": "Deployed",
        "observedGeneration": 1,
        "outdatedVirtualMachineInstanceWorkloads": 0,
    }
    status |= dict.fromkeys(
        ("observedKubeVirtVersion", "targetKubeVirtVersion", "operatorVersion"), version
    )
    status |= dict.fromkeys(("observedDeploymentID", "targetDeploymentID"), "4f3d")
    status["conditions"] = conditions(
        Created=True, Available=True, Progressing=False, Degraded=False
    )
    metadata: Object = {"generation": 1}
    if managed:
        metadata["labels"] = {
            "app": "kubevirt-hyperconverged",
            "app.kubernetes.io/managed-by": "hco-operator",
        }
    name = "kubevirt-kubevirt-hyperconverged" if managed else "kubevirt"
    return obj(
        "KubeVirt", "kubevirt.io/v1", name, namespace, metadata=metadata, spec=spec, status=status
    )


def _entries(
    *rules: tuple[str, str, Iterable[str]],
) -> dict[str, tuple[str, Iterable[str], Iterable[str]]]:
    """Return webhooks of KubeVirt on its own resources: by name, each with its operations."""
    return {
        f"{name}.kubevirt.io": ("kubevirt.io", [resource], operations)
        for name, resource, operations in rules
    }


def _webhooks(release: tuple[int, int], target: tuple[str, str]) -> list[Object]:
    """Return the webhooks of virt-api and virt-operator;
    the one on evictions fails closed since 1.5.
    """
    vmis, moves = "virtualmachineinstances", "virtualmachineinstancemigrations"
    validators = _entries(
        ("virtualmachineinstances-create-validator", vmis, ["CREATE"]),
        ("virtualmachineinstances-update-validator", vmis, ["UPDATE"]),
        ("virtualmachine-validator", "virtualmachines", ANY),
        ("migration-create-validator", moves, ["CREATE"]),
        ("migration-update-validator", moves, ["UPDATE"]),
        ("kubevirt-crd-status-validator", f"{vmis}/status", ANY),
    )
    validating = webhook("Validating", "virt-api-validator", target, validators)
    eviction = {"virt-launcher-eviction-interceptor.kubevirt.io": ("", ["pods/eviction"], ["*"])}
    names = {
        "matchConditions": [
            {"name": "only-vms", "expression": 'request.name.startsWith("virt-launcher")'}
        ]
    }
    late = release >= (1, 5)
    entry = webhook(
        "Validating",
        "x",
        target,
        eviction,
        policy="Fail" if late else "Ignore",
        **names if late else {},
    )
    validating["webhooks"] += entry["webhooks"]
    mutators = _entries(
        ("virtualmachines-mutator", "virtualmachines", ANY),
        ("virtualmachineinstances-mutator", vmis, ["CREATE"]),
        ("migrations-mutator", moves, ["CREATE"]),
    )
    guard = _entries(("kubevirt-validator", "kubevirts", ["DELETE"]))
    operator = webhook(
        "Validating", "virt-operator-validator", (target[0], "kubevirt-operator-webhook"), guard
    )
    return [validating, webhook("Mutating", "virt-api-mutator", target, mutators), operator]


def claim(
    name: str,
    namespace: str = "vms",
    *,
    modes: Iterable[str] = ("ReadWriteMany",),
    volume_mode: str = "Block",
    storage_class: str = "block",
    driver: str = "rook-ceph.rbd.csi.ceph.com",
    affinity: Mapping[str, str] = {},
    size: str = "20Gi",
) -> list[Object]:
    volume = f"pvc-{namespace}-{name}"
    spec: Object = {
        "accessModes": list(modes),
        "volumeMode": volume_mode,
        "storageClassName": storage_class,
    }
    request = {"resources": {"requests": {"storage": size}}, "volumeName": volume}
    bound = {"phase": "Bound", "accessModes": list(modes), "capacity": {"storage": size}}
    persistent: Object = spec | {
        "capacity": {"storage": size},
        "csi": {"driver": driver, "volumeHandle": volume},
    }
    persistent["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    persistent["persistentVolumeReclaimPolicy"] = "Delete"
    if affinity:
        terms = [
            {
                "matchExpressions": [
                    {"key": key, "operator": "In", "values": [value]}
                    for key, value in affinity.items()
                ]
            }
        ]
        persistent["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    found = obj("PersistentVolumeClaim", "v1", name, namespace, spec=spec | request, status=bound)
    return [
        found,
        obj("PersistentVolume", "v1", volume, spec=persistent, status={"phase": "Bound"}),
    ]


def storage_class(name: str, driver: str) -> list[Object]:
    made = obj(
        "StorageClass",
        "storage.k8s.io/v1",
        name,
        provisioner=driver,
        reclaimPolicy="Delete",
        volumeBindingMode="Immediate",
    )
    return [
        made,
        obj(
            "CSIDriver",
            "storage.k8s.io/v1",
            driver,
            spec={"attachRequired": True, "podInfoOnMount": False},
        ),
    ]


MIGRATABLE = {
    "type": "LiveMigratable",
    "status": "True",
    "lastProbeTime": None,
    "lastTransitionTime": None,
}


def unmigratable(reason: str, message: str) -> Object:
    return MIGRATABLE | {"status": "False", "reason": reason, "message": message}


NON_SHARED = unmigratable(
    "DisksNotLiveMigratable",
    "cannot migrate VMI: PVC {} is not shared, live migration requires that all PVCs must be "
    "shared (using ReadWriteMany access mode)",
)
HOST_DEVICE = unmigratable("HostDeviceNotLiveMigratable", "VMI uses a PCI host devices")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guest:
    """What a virtual machine asks for.

    Attributes:
        strategy: the VM's own eviction strategy.
        effective: the strategy in the VMI, if the cluster's configuration gives it.
        age: days since the guest started.
    """

    namespace: str = "vms"
    strategy: str | None = None
    effective: str | None = None
    run: str = "Always"
    memory: str = "4Gi"
    cores: int = 2
    disks: Iterable[str] = ()
    hotplugged: Iterable[str] = ()
    migratable: Object | None = dataclasses.field(default_factory=lambda: dict(MIGRATABLE))
    domain: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    vm_spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    status: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    requests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    extra_conditions: Iterable[Object] = ()
    of: Object | None = None
    age: float = 5

    def body(self, machine_type: Object) -> Object:
        """Return the spec of the VMI."""
        own = dict(self.domain)
        disks = [{"name": each, "disk": {"bus": "virtio"}} for each in self.disks]
        disks += [{"name": each, "disk": {"bus": "scsi"}} for each in self.hotplugged]
        devices: Object = {
            "disks": disks,
            "interfaces": [{"name": "default", "masquerade": {}}],
            "rng": {},
        }
        cpu = {"cores": self.cores, "sockets": 1, "threads": 1, "model": "host-model"}
        inner: Object = {"cpu": cpu, "memory": {"guest": self.memory}, "machine": machine_type}
        inner |= {
            "devices": devices | own.pop("devices", {}),
            "resources": {"requests": {"memory": self.memory}},
        } | own
        plain = [
            {"name": each, "persistentVolumeClaim": {"claimName": each}} for each in self.disks
        ]
        plugged = [
            {"name": each, "persistentVolumeClaim": {"claimName": each, "hotpluggable": True}}
            for each in self.hotplugged
        ]
        found: Object = {
            "domain": inner,
            "volumes": plain + plugged,
            "networks": [{"name": "default", "pod": {}}],
        }
        found |= {"architecture": "amd64", "terminationGracePeriodSeconds": 180} | dict(self.spec)
        return found | ({"evictionStrategy": self.strategy} if self.strategy else {})

    def running(self, name: str, on: str, pod_uid: str, machine_type: Object) -> Object:
        """Return the status of the VMI."""
        started = {"Pending": 60, "Scheduling": 58, "Scheduled": 45, "Running": 40}
        volumes: list[Object] = [
            {"name": each, "target": f"vd{index}"} for index, each in enumerate(self.disks)
        ]
        attached = {"phase": "Ready", "hotplugVolume": {"attachPodName": f"hp-volume-{name}"}}
        volumes += [
            {"name": each, "target": f"sd{index}"} | attached
            for index, each in enumerate(self.hotplugged)
        ]
        reported = [self.migratable] if self.migratable else []
        sizes = dict.fromkeys(("guestAtBoot", "guestCurrent", "guestRequested"), self.memory)
        return {
            "phase": "Running",
            "nodeName": on,
            "activePods": {pod_uid: on},
            "conditions": [*conditions(Ready=True), *reported, *self.extra_conditions],
            "phaseTransitionTimestamps": [
                {"phase": phase, "phaseTransitionTimestamp": ago(days=self.age, seconds=late)}
                for phase, late in started.items()
            ],
            "migrationMethod": "LiveMigration",
            "migrationTransport": "Unix",
            "qosClass": "Burstable",
            "runtimeUser": 107,
            "machine": machine_type,
            "volumeStatus": volumes,
            "memory": sizes,
            "currentCPUTopology": {"cores": self.cores, "sockets": 1, "threads": 1},
            "interfaces": [{"name": "default", "ipAddress": "10.244.1.9", "queueCount": 1}],
            "virtualMachineRevisionName": f"revision-start-vm-{name}-1",
        } | dict(self.status)


def machine(name: str, on: str, release: tuple[int, int] = (1, 6), **fields: Any) -> list[Object]:
    """Return a running VM, its VMI, its virt-launcher pod, and what else KubeVirt creates for it;
    fields: see Guest.
    """
    guest = Guest(**fields)
    machine_type = {"type": "pc-q35-rhel9.6.0" if release >= (1, 6) else "q35"}
    body = guest.body(machine_type)
    template = {"metadata": {"labels": dict(guest.labels)}, "spec": body}
    status = {
        "created": True,
        "ready": True,
        "printableStatus": "Running",
        "conditions": conditions(Ready=True),
    }
    spec = {"runStrategy": guest.run, "template": template} | dict(guest.vm_spec)
    vm = obj("VirtualMachine", "kubevirt.io/v1", name, guest.namespace, spec=spec, status=status)
    if guest.of is not None:
        vm["metadata"]["ownerReferences"] = owner(guest.of)
    launcher = f"virt-launcher-{name}-k2x7q"
    live = guest.running(name, on, f"uid-pod-{guest.namespace}-{launcher}", machine_type)
    vmi = obj(
        "VirtualMachineInstance",
        "kubevirt.io/v1",
        name,
        guest.namespace,
        spec=copy.deepcopy(body),
        status=live,
    )
    labels = {"kubevirt.io/nodeName": on, **guest.labels}
    since = ago(days=guest.age, seconds=60)
    vmi["metadata"] |= {"ownerReferences": owner(vm), "labels": labels, "creationTimestamp": since}
    if guest.effective:
        vmi["spec"]["evictionStrategy"] = guest.effective
    pods = _pods(launcher, on, vmi, guest, release)
    chosen = {"kubevirt.io/created-by": vmi["metadata"]["uid"]}
    strategy = guest.effective or guest.strategy
    guarded = release <= (1, 5) and strategy in ("LiveMigrate", "LiveMigrateIfPossible")
    if guarded and guest.migratable == MIGRATABLE:
        named = f"kubevirt-disruption-budget-{name}"
        pods.append(budget(named, guest.namespace, chosen, 1, available=1, of=vmi))
    return [vm, vmi, *pods]


def _pods(
    launcher: str, on: str, vmi: Object, guest: Guest, release: tuple[int, int]
) -> list[Object]:
    """Return the virt-launcher pod, and the pod that attaches hotplugged volumes."""
    name = vmi["metadata"]["name"]
    marks = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi["metadata"]["uid"]}
    marks |= {"vm.kubevirt.io/name": name, "kubevirt.io/nodeName": on, **guest.labels}
    need = {"cpu": f"{guest.cores * 100}m", "memory": guest.memory, "ephemeral-storage": "50M"}
    need |= dict.fromkeys(KVM, "1") | dict(guest.requests)
    where = {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64", **guest.selector}
    if release >= (1, 6):
        where["machine-type.node.kubevirt.io/pc-q35-rhel9.6.0"] = "true"
    claims = [{"name": disk, "persistentVolumeClaim": {"claimName": disk}} for disk in guest.disks]
    empty = [
        {"name": each, "emptyDir": {}}
        for each in ("private", "public", "sockets", "libvirt-runtime")
    ]
    spec: Object = {"nodeSelector": where, "volumes": claims + empty, "restartPolicy": "Never"}
    spec["terminationGracePeriodSeconds"] = 210
    notes = {"kubevirt.io/domain": name}
    made = pod(
        launcher, guest.namespace, on, marks, vmi, requests=need, spec=spec, annotations=notes
    )
    plugged = [
        {"name": disk, "persistentVolumeClaim": {"claimName": disk}} for disk in guest.hotplugged
    ]
    if not plugged:
        return [made]
    helper = {"volumes": plugged, "nodeSelector": {"kubernetes.io/hostname": on}}
    return [
        made,
        pod(
            f"hp-volume-{name}",
            guest.namespace,
            on,
            {"kubevirt.io": "hotplug-disk"},
            made,
            spec=helper,
        ),
    ]
