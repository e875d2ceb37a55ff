"""Random clusters with VMs: each seed gives the same cluster again.

They are consistent: KubeVirt has what HyperConverged writes into it, and every running VMI has its
VM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

Manifest = dict[str, Any]
NAMESPACES: Final = ("shop", "bank")
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
NOW: Final = "2026-01-01T12:00:00Z"
EARLIER: Final = ("2026-01-01T11:59:50Z", "2026-01-01T11:00:00Z")
"""Ten seconds and an hour before: what takes so long ends soon, or never."""


DEVICES: Final = {f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net")}


def manifest(version: str, kind: str, name: str, namespace: str = "", /, **fields: Any) -> Manifest:
    """Return an object; ``metadata`` is added to its name and namespace."""
    metadata = (
        {"name": name}
        | ({"namespace": namespace} if namespace else {})
        | fields.pop("metadata", {})
    )
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def random_cluster(seed: int) -> list[Manifest]:
    """Return the objects of a small cluster. About a third of them can be drained."""
    chance = Random(seed)
    names = ["a", "b", "c", "d"][: chance.randint(2, 4)]
    made = [
        manifest("v1", "Namespace", name, metadata={"labels": {"team": name}})
        for name in NAMESPACES
    ]
    made += [_node(chance, name) for name in names]
    made += _configuration(chance)
    for index in range(chance.randint(1, 4)):
        made += _vm(chance, f"vm{index}", names)
    made += _other_pods(chance, names)
    made += _rollout(chance, names)
    made += _health_checks(chance)
    return made


def _maybe(chance: Random, share: float) -> bool:
    return chance.random() < share


def _node(chance: Random, name: str) -> Manifest:
    ready = chance.choice(("True",) * 14 + ("Unknown", "False"))
    labels = {
        "kubevirt.io/schedulable": "true" if ready == "True" else "false",
        "kubernetes.io/arch": "amd64",
        HOSTNAME: name,
        ZONE: chance.choice("xy"),
        "node-role.kubernetes.io/worker": "",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
    }
    if _maybe(chance, 0.7):
        labels |= {
            "host-model-cpu.node.kubevirt.io/Skylake": "true",
            "cpu-model-migration.node.kubevirt.io/Skylake": "true",
        }
    if _maybe(chance, 0.1):
        labels["node-labeller.kubevirt.io/obsolete-host-model"] = "true"
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"labels": labels},
        spec={"unschedulable": True} if _maybe(chance, 0.06) else {},
        status={
            "allocatable": {
                "cpu": "8",
                "memory": chance.choice(("8Gi", "64Gi", "64Gi")),
                "pods": "30",
            }
            | {"ephemeral-storage": "100Gi"}
            | DEVICES,
            "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": NOW}],
        },
    )


def _configuration(chance: Random) -> Iterator[Manifest]:
    limits = {
        key: chance.choice((0, 1, 2, 5)) if _maybe(chance, 0.4) else 2
        for key in ("parallelMigrationsPerCluster", "parallelOutboundMigrationsPerNode")
        if _maybe(chance, 0.4)
    }
    given: Manifest = {"migrations": limits}
    if _maybe(chance, 0.5):
        given["evictionStrategy"] = chance.choice(
            ("LiveMigrate", "LiveMigrateIfPossible", "None", "External")
        )
    if _maybe(chance, 0.2):
        given["cpuModel"] = chance.choice(("Skylake", "host-passthrough"))
    developer: Manifest = {}
    if _maybe(chance, 0.2):
        developer["cpuAllocationRatio"] = chance.choice((1, 100))
    if _maybe(chance, 0.1):
        developer["nodeSelectors"] = {ZONE: "x"}
    if _maybe(chance, 0.2):
        developer["memoryOvercommit"] = 400
    kubevirt = manifest(
        "kubevirt.io/v1",
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        spec={"configuration": given | {"developerConfiguration": developer}},
        status={"observedKubeVirtVersion": "v1.6.0", "defaultArchitecture": "amd64"},
    )
    yield kubevirt
    if _maybe(chance, 0.25):
        kubevirt["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
        written = {"liveMigrationConfig": limits}
        written |= (
            {"evictionStrategy": given["evictionStrategy"]} if "evictionStrategy" in given else {}
        )
        yield manifest("hco.kubevirt.io/v1beta1", "HyperConverged", "hco", "kubevirt", spec=written)


def _vm(chance: Random, name: str, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Yield a running VM: VirtualMachine, VMI, launcher pod, and what these refer to."""
    namespace, on = chance.choice(NAMESPACES), chance.choice(nodes)
    run = chance.choice(("Always", "Always", "RerunOnFailure", "Manual"))
    yield manifest("kubevirt.io/v1", "VirtualMachine", name, namespace, spec={"runStrategy": run})
    memory = chance.choice(("1Gi", "2Gi", "6Gi", "30Gi"))
    spec: Manifest = {
        "domain": {
            "memory": {"guest": memory},
            "cpu": {"cores": chance.choice((1, 4))},
            "devices": {},
        }
    }
    strategy = chance.choice((None, "LiveMigrate", "LiveMigrate", "LiveMigrateIfPossible", "None"))
    if strategy:
        spec["evictionStrategy"] = strategy
    metadata: Manifest = {
        "uid": f"uid-{name}",
        "creationTimestamp": EARLIER[1],
        "labels": {"app": chance.choice("pq")},
    }
    if _maybe(chance, 0.15):
        spec["affinity"] = _affinity(chance)
    if _maybe(chance, 0.1):
        spec["nodeSelector"] = {ZONE: chance.choice("xy")}
    if _maybe(chance, 0.2):
        yield from _storage(chance, name, namespace, nodes)
        spec["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]
    if _maybe(chance, 0.1):
        yield _network(chance, name, namespace)
        spec["networks"] = [{"name": "net", "multus": {"networkName": name}}]
        spec["domain"]["devices"]["interfaces"] = [{"name": "net", "sriov": {}}]
    if _maybe(chance, 0.08):
        metadata["deletionTimestamp"] = chance.choice(EARLIER)
    migratable = chance.choice(("True",) * 7 + ("False",))
    owner = [
        {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "controller": True}
    ]
    conditions = [
        {"type": "LiveMigratable", "status": migratable, "reason": "DisksNotLiveMigratable"}
    ]
    status = {"phase": "Running", "nodeName": on, "conditions": conditions}
    yield manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        namespace,
        metadata=metadata | {"ownerReferences": owner},
        spec=spec,
        status=status,
    )
    if _maybe(chance, 0.8):
        yield _launcher(chance, name, namespace, on, metadata, spec)
    yield from _beside_vm(chance, name, namespace)


def _beside_vm(chance: Random, name: str, namespace: str) -> Iterator[Manifest]:
    """Yield what may hold a VM: migrations that failed, a quota, a budget."""
    if _maybe(chance, 0.1):
        for number in range(5):
            yield _failed_migration(name, namespace, number)
    if _maybe(chance, 0.1):
        quota = {"requests.memory": chance.choice(("4Gi", "100Gi"))}
        counted = {"hard": quota, "used": {"requests.memory": "1Gi"}}
        yield manifest("v1", "ResourceQuota", name, namespace, spec={"hard": quota}, status=counted)
    if _maybe(chance, 0.1):
        yield _budget(chance, f"vm-{name}", namespace, {"vm": name})


def _affinity(chance: Random) -> Manifest:
    term = {
        "topologyKey": chance.choice((HOSTNAME, ZONE)),
        "labelSelector": {"matchLabels": {"app": chance.choice("pq")}},
    }
    if _maybe(chance, 0.5):
        term["namespaceSelector"] = {"matchLabels": {"team": chance.choice(NAMESPACES)}}
    which = chance.choice(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
    return {which: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _launcher(
    chance: Random, name: str, namespace: str, on: str, metadata: Manifest, spec: Manifest
) -> Manifest:
    requests = {"cpu": chance.choice(("100m", "1")), "memory": spec["domain"]["memory"]["guest"]}
    owner = {"kind": "VirtualMachineInstance", "name": name, "controller": True}
    labels = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": metadata["uid"],
        "vm": name,
    } | metadata["labels"]
    return manifest(
        "v1",
        "Pod",
        f"virt-launcher-{name}",
        namespace,
        metadata={
            "labels": labels,
            "annotations": {"kubevirt.io/domain": name},
            "ownerReferences": [owner],
        },
        spec={
            "nodeName": on,
            "priority": 0,
            "containers": [{"name": "compute", "resources": {"requests": requests}}],
            **{key: spec[key] for key in ("affinity", "nodeSelector", "volumes") if key in spec},
        },
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )


def _storage(chance: Random, name: str, namespace: str, nodes: Sequence[str]) -> Iterator[Manifest]:
    claim = {
        "accessModes": ["ReadWriteMany"],
        "volumeName": f"pv-{name}",
        "storageClassName": "fast",
    }
    phase = chance.choice(("Bound",) * 6 + ("Lost",))
    yield manifest(
        "v1", "PersistentVolumeClaim", name, namespace, spec=claim, status={"phase": phase}
    )
    source: Manifest = {"csi": {"driver": "csi.example.com", "volumeHandle": name}}
    if _maybe(chance, 0.3):
        source = {"hostPath": {"path": "/data"}}
    elif _maybe(chance, 0.3):
        on = {"key": HOSTNAME, "operator": "In", "values": [chance.choice(nodes)]}
        source |= {
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}}
        }
    yield manifest("v1", "PersistentVolume", f"pv-{name}", spec=source)
    for node in nodes:
        driver = {"name": "csi.example.com", "allocatable": {"count": chance.choice((1, 3))}}
        yield manifest("storage.k8s.io/v1", "CSINode", node, spec={"drivers": [driver]})


def _network(chance: Random, name: str, namespace: str) -> Manifest:
    resource = {"k8s.v1.cni.cncf.io/resourceName": "example.com/nic"} if _maybe(chance, 0.5) else {}
    return manifest(
        "k8s.cni.cncf.io/v1",
        "NetworkAttachmentDefinition",
        name,
        namespace,
        metadata={"annotations": resource},
    )


def _failed_migration(name: str, namespace: str, number: int) -> Manifest:
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstanceMigration",
        f"{name}-{number}",
        namespace,
        metadata={
            "creationTimestamp": f"2026-01-01T11:0{number}:00Z",
            "annotations": {"kubevirt.io/evacuationMigration": "a"},
        },
        spec={"vmiName": name},
        status={"phase": "Failed"},
    )


def _budget(chance: Random, name: str, namespace: str, labels: Manifest) -> Manifest:
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        namespace,
        spec={"minAvailable": 1, "selector": {"matchLabels": labels}},
        status={
            "disruptionsAllowed": chance.choice((0, 1, 1)),
            "expectedPods": 2,
            "currentHealthy": 2,
            "desiredHealthy": 1,
        },
    )


def _other_pods(chance: Random, nodes: Sequence[str]) -> Iterator[Manifest]:
    for index in range(chance.randint(0, 3)):
        namespace, name = chance.choice(NAMESPACES), f"web{index}"
        metadata: Manifest = {"labels": {"app": chance.choice("pq"), "web": name}}
        metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": name, "controller": True}]
        if _maybe(chance, 0.1):
            metadata["deletionTimestamp"] = chance.choice(EARLIER)
        spec: Manifest = {
            "nodeName": chance.choice(nodes),
            "priority": chance.choice((0, 0, 0, -10)),
        }
        spec["containers"] = [
            {"name": "c", "resources": {"requests": {"memory": chance.choice(("1Gi", "5Gi"))}}}
        ]
        if _maybe(chance, 0.2):
            term = {
                "topologyKey": HOSTNAME,
                "labelSelector": {"matchLabels": {"app": chance.choice("pq")}},
            }
            term["namespaceSelector"] = {"matchLabels": {"team": chance.choice(NAMESPACES)}}
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        ready = [{"type": "Ready", "status": "True"}]
        yield manifest(
            "v1",
            "Pod",
            name,
            namespace,
            metadata=metadata,
            spec=spec,
            status={"phase": "Running", "conditions": ready},
        )
        if _maybe(chance, 0.2):
            yield _budget(chance, name, namespace, {"web": name})


def _rollout(chance: Random, nodes: Sequence[str]) -> Iterator[Manifest]:
    paused = {"paused": True} if _maybe(chance, 0.4) else {}
    if _maybe(chance, 0.4):
        selector = {"matchLabels": {"node-role.kubernetes.io/worker": ""}}
        yield manifest(
            "machineconfiguration.openshift.io/v1",
            "MachineConfigPool",
            "worker",
            spec={"nodeSelector": selector} | paused,
        )
    if _maybe(chance, 0.4):
        yield manifest(
            "cluster.x-k8s.io/v1beta1", "MachineDeployment", "workers", "bank", spec=paused
        )
        for name in nodes:
            labels = {"cluster.x-k8s.io/deployment-name": "workers"}
            machine = manifest(
                "cluster.x-k8s.io/v1beta1",
                "Machine",
                f"m-{name}",
                "bank",
                metadata={"labels": labels},
            )
            yield machine | {"status": {"nodeRef": {"name": name}}}


def _health_checks(chance: Random) -> Iterator[Manifest]:
    if _maybe(chance, 0.5):
        template = {
            "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
            "kind": "SelfNodeRemediationTemplate",
        }
        reference = template | {"name": "snr", "namespace": "bank"}
        condition = {"type": "Ready", "status": "Unknown", "duration": "300s"}
        paused = {"pauseRequests": ["upgrade"]} if _maybe(chance, 0.2) else {}
        yield manifest(
            "remediation.medik8s.io/v1alpha1",
            "NodeHealthCheck",
            "workers",
            spec={
                "minHealthy": chance.choice(("51%", "100%")),
                "selector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
                "unhealthyConditions": [condition],
                "remediationTemplate": reference,
            }
            | paused,
        )
        yield template | {
            "metadata": {"name": "snr", "namespace": "bank"},
            "spec": {"template": {"spec": {}}},
        }
