"""Random VMIs and KubeVirt settings that decide on launcher pods; a seed names a case."""

from __future__ import annotations

import json
import random
from typing import Any

NAMESPACE = "shop"
STATE = "state"
_BINDINGS = {
    "plain": {"networkAttachmentDefinition": "default/plain"},
    "large": {
        "sidecarImage": "large",
        "computeResourceOverhead": {"requests": {"memory": "77Mi"}},
        "migration": {},
    },
    "small": {"sidecarImage": "small"},
}
_RESOURCES = ("example.com/sriov", "example.com/other")


class Chance:
    """A source of random choices."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def happens(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def some(self, share: float, **values: Any) -> dict[str, Any]:
        """Return those of these fields that chance keeps; a function makes its value only then."""
        kept = {key: value for key, value in values.items() if self.happens(share)}
        return {key: value() if callable(value) else value for key, value in kept.items()}


def case(seed: int) -> dict[str, Any]:
    """Return a case for ``main.go``."""
    chance = Chance(seed)
    typed = chance.happens(0.25)
    labels = chance.some(0.3, limited="yes") | chance.some(
        0.3, **{"alpha.kubevirt.io/auto-memory-limits-ratio": chance.one("1.5", "3", "0.5", "x")}
    )
    vmi = _vmi(chance, typed=typed)
    return {
        "kubevirt": _kubevirt(chance),
        "namespace": {"metadata": {"name": NAMESPACE, "labels": labels}},
        "quotas": _quotas(chance),
        "claims": _claims(vmi),
        "networks": [
            {
                "metadata": {
                    "name": f"net{index}",
                    "namespace": NAMESPACE,
                    "annotations": annotations,
                }
            }
            for index, annotations in enumerate(
                ({}, *({"k8s.v1.cni.cncf.io/resourceName": name} for name in _RESOURCES))
            )
        ],
        "node": _node(chance),
        "vmi": vmi,
        "type": _type(chance) if typed else None,
        "migrated": chance.one({}, {}, {"cpu-model-migration.node.kubevirt.io/Old": "true"}),
    }


def _claims(vmi: dict[str, Any]) -> list[Any]:
    """Return every claim that a case may name,
    and the two that keep a persistent TPM or firmware.
    """
    plain = [{"name": f"{kind}{index}"} for kind in ("claim", "base", "dv") for index in range(3)]
    state = {"name": STATE, "labels": {"persistent-state-for": vmi["metadata"]["name"]}}
    moved = {"name": STATE + "-target", "labels": {"kubevirt.io/migrationName": "move"}}
    return [
        {"metadata": {"namespace": NAMESPACE, **each}, "spec": {}}
        for each in (*plain, state, moved)
    ]


# --- the cluster ----------------------------------------------------------------------------------


def _kubevirt(chance: Chance) -> dict[str, Any]:
    gates = [
        gate
        for gate in ("HypervStrictCheck", "AlignCPUs", "ImageVolume", "DownwardMetrics")
        if chance.happens(0.3)
    ]
    developer = chance.some(
        0.3,
        memoryOvercommit=chance.one(50, 100, 150, 175),
        cpuAllocationRatio=chance.one(1, 3, 7, 10, 16),
        nodeSelectors={"pool": "vms"},
    )
    developer |= chance.some(0.15, useEmulation=True) | {"featureGates": gates}
    configuration = chance.some(
        0.25,
        cpuRequest=chance.one("100m", "250m", "1"),
        cpuModel=chance.one("Skylake-Client", "host-passthrough", "host-model"),
        additionalGuestMemoryOverheadRatio=chance.one("1.0", "1.37", "2"),
        autoCPULimitNamespaceLabelSelector={"matchLabels": {"limited": "yes"}},
        virtualMachineOptions={"disableSerialConsoleLog": {}},
        supportContainerResources=lambda: _support(chance),
    )
    network = {"binding": _BINDINGS} | chance.some(0.3, defaultNetworkInterface="masquerade")
    configuration |= {"developerConfiguration": developer, "network": network}
    annotations = chance.some(0.5, **{"alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": ""})
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt", "annotations": annotations},
        "spec": {"configuration": configuration},
        "status": {
            "defaultArchitecture": chance.one("amd64", "amd64", "arm64"),
            "observedKubeVirtVersion": "v1.8.0",
        },
    }


def _support(chance: Chance) -> list[Any]:
    def amounts() -> dict[str, Any]:
        return chance.some(
            0.6, cpu=chance.one("3m", "55m", "0"), memory=chance.one("7M", "90Mi", "2Gi")
        )

    kinds = ("container-disk", "virtiofs", "sidecar", "guest-console-log", "sidecar")
    return [
        {"type": kind, "resources": {"requests": amounts(), "limits": amounts()}}
        for kind in kinds
        if chance.happens(0.7)
    ]


def _quotas(chance: Chance) -> list[Any]:
    hard = chance.some(
        0.3, **{"limits.cpu": "100", "limits.memory": "100Gi", "requests.cpu": "100"}
    )
    return [
        {
            "metadata": {"name": "quota", "namespace": chance.one(NAMESPACE, "other")},
            "spec": {"hard": hard},
        }
    ]


def _node(chance: Chance) -> dict[str, Any]:
    features = {
        f"host-model-required-features.node.kubevirt.io/{name}": "true"
        for name in ("apic", "vmx", "xsave")
    }
    labels = {"host-model-cpu.node.kubevirt.io/Skylake": "true"} | chance.some(0.6, **features)
    labels |= chance.some(0.8, **{"cpu-vendor.node.kubevirt.io/Intel": "true"})
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here", "labels": labels}}


# --- the VMI --------------------------------------------------------------------------------------


def _vmi(chance: Chance, *, typed: bool) -> dict[str, Any]:
    hooks = [{"image": f"hook{index}"} for index in range(chance.one(1, 1, 2))]
    annotations = chance.some(0.15, **{"hooks.kubevirt.io/hookSidecars": json.dumps(hooks)})
    annotations |= chance.some(0.1, **{"alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": ""})
    annotations |= chance.some(0.1, **{"sidecar.istio.io/inject": "true"})
    devices = _devices(chance)
    domain = {
        "devices": devices,
        "cpu": _cpu(chance, typed=typed),
        "memory": _memory(chance, typed=typed),
    }
    if not typed:
        domain["resources"] = _resources(chance, domain["memory"])
        domain |= _io_threads(chance)
    domain |= chance.some(
        0.2, launchSecurity=chance.one({"sev": {}}, {"snp": {}}, {"tdx": {}}, _SEV_ES)
    )
    domain |= chance.some(
        0.2, features={"hyperv": _hyperv(chance)}, machine={"type": "pc-q35-rhel9.4"}
    )
    domain |= chance.some(0.15, firmware=lambda: _firmware(chance))
    spec = {
        "domain": domain,
        "volumes": _volumes(chance, devices),
        **_networks(chance, devices),
        **_placed(chance),
    }
    probe = {"exec": {"command": ["true"]}}
    spec |= chance.some(
        0.15, livenessProbe=probe, readinessProbe=chance.one(probe, {"tcpSocket": {"port": 1}})
    )
    status = chance.some(
        0.2, topologyHints={"tscFrequency": 2500000000}, machine={"type": "pc-q35-rhel9.2"}
    )
    name = chance.one("vm", "vm", "vm.with.dots", "vm-" + "x" * 70)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": "0f0f",
            "labels": {"app": "web"},
            "annotations": annotations,
        },
        "spec": spec | chance.some(0.1, hostname="host"),
        "status": status,
    }


_SEV_ES = {"sev": {"policy": {"encryptedState": True}}}


def _cpu(chance: Chance, *, typed: bool) -> dict[str, Any]:
    cpu = {}
    if not typed:
        cpu = chance.some(
            0.5, cores=chance.one(1, 3, 4), sockets=chance.one(1, 2), threads=chance.one(1, 2)
        )
        cpu |= chance.some(
            0.3, dedicatedCpuPlacement=True, model=chance.one("Haswell", "host-model")
        )
        cpu |= chance.some(0.1, realtime={})
        if cpu.get("dedicatedCpuPlacement"):
            cpu |= chance.some(0.5, isolateEmulatorThread=True)
    names = [name for name in ("invtsc", "apic", "sse4", "vmx") if chance.happens(0.15)]
    features = [
        {"name": name} | chance.some(0.7, policy=chance.one("require", "forbid", "force"))
        for name in names
    ]
    return cpu | ({"features": features} if features else {})


def _memory(chance: Chance, *, typed: bool) -> dict[str, Any]:
    memory = (
        {}
        if typed
        else chance.some(0.7, guest=chance.one("1Gi", "1500M", "3221225473", "64Mi", "2.5Gi"))
    )
    memory |= chance.some(0.15, reservedOverhead={"addedOverhead": chance.one("10Mi", "1001k")})
    return memory | chance.some(0.2, hugepages={"pageSize": chance.one("2Mi", "1Gi")})


def _resources(chance: Chance, memory: dict[str, Any]) -> dict[str, Any]:
    def amounts(share: float) -> dict[str, Any]:
        found = chance.some(
            share,
            cpu=chance.one("500m", "2", "3", 1),
            memory=chance.one("1Gi", "2Gi", "3333333333"),
        )
        return found | chance.some(0.15, **{"ephemeral-storage": "1Gi", "example.com/own": "2"})

    resources = {"requests": amounts(0.35), "limits": amounts(0.3)} | chance.some(
        0.15, overcommitGuestOverhead=True
    )
    if "guest" not in memory and not any(
        "memory" in resources[side] for side in ("requests", "limits")
    ):
        resources["requests"]["memory"] = chance.one("1Gi", "999999999")
    if chance.happens(0.15):  # of class Guaranteed
        resources["limits"] = dict(resources["requests"]) | {"cpu": "2", "memory": "4Gi"}
        resources["requests"] = dict(resources["limits"])
    return resources


def _io_threads(chance: Chance) -> dict[str, Any]:
    return chance.some(
        0.2,
        ioThreads={"supplementalPoolThreadCount": chance.one(1, 4)},
        ioThreadsPolicy=chance.one("supplementalPool", "shared", "auto"),
    )


def _devices(chance: Chance) -> dict[str, Any]:
    devices = chance.some(
        0.2,
        autoattachGraphicsDevice=chance.happens(),
        autoattachSerialConsole=chance.happens(),
        logSerialConsole=chance.happens(),
        autoattachVSOCK=chance.happens(),
        tpm=chance.one({}, {"enabled": False}, {"persistent": True}),
    )
    devices |= chance.some(
        0.12,
        gpus=[
            {"name": "a", "deviceName": "nvidia.com/A100"},
            {"name": "b", "deviceName": "nvidia.com/A100"},
        ],
        hostDevices=[
            {
                "name": "c",
                "deviceName": chance.one("intel.com/qat", "nvidia.com/A100", _RESOURCES[0]),
            }
        ],
    )
    return devices


def _networks(chance: Chance, devices: dict[str, Any]) -> dict[str, Any]:
    if chance.happens(0.15):
        devices["autoattachPodInterface"] = chance.happens()
    if chance.happens(0.4):
        return {}
    networks, interfaces = [], []
    for index in range(chance.one(0, 1, 2, 3)):
        interface = {"name": f"n{index}"} | chance.some(0.3, model=chance.one("e1000e", "virtio"))
        interface |= chance.one(
            {"bridge": {}},
            {"masquerade": {}},
            {"sriov": {}},
            {"passtBinding": {}},
            _binding(chance),
        )
        interfaces.append(interface)
        source = {
            "multus": {"networkName": chance.one("net0", "net1", "net2", f"{NAMESPACE}/net1")}
        }
        networks.append({"name": f"n{index}"} | (source if chance.happens(0.6) else {"pod": {}}))
    devices["interfaces"] = interfaces
    return {"networks": networks}


def _binding(chance: Chance) -> dict[str, Any]:
    return {"binding": {"name": chance.one(*_BINDINGS)}}


def _volumes(chance: Chance, devices: dict[str, Any]) -> list[Any]:
    volumes = []
    for index in range(chance.one(0, 1, 2, 3)):
        source = chance.one(
            {"containerDisk": {"image": "disk"}},
            {"persistentVolumeClaim": {"claimName": f"claim{index}"}},
            {"ephemeral": {"persistentVolumeClaim": {"claimName": f"base{index}"}}},
            {"dataVolume": {"name": f"dv{index}"}},
            {"dataVolume": {"name": f"dv{index}", "hotpluggable": True}},
            {"downwardMetrics": {}},
            {"emptyDisk": {"capacity": "1Gi"}},
            {"configMap": {"name": "cm"}},
        )
        volumes.append({"name": f"v{index}"} | source)
    disks = [{"name": each["name"], "disk": {}} for each in volumes]
    if volumes and chance.happens(0.15):
        filesystem = disks.pop()
        devices["filesystems"] = [{"name": filesystem["name"], "virtiofs": {}}]
    if disks and chance.happens(0.1):
        disks[0] = {"name": disks[0]["name"], "lun": {"reservation": chance.happens(0.7)}}
    devices["disks"] = disks
    return volumes


def _firmware(chance: Chance) -> dict[str, Any]:
    return chance.one(
        {"kernelBoot": {"container": {"image": "kernel"}}},
        {"bootloader": {"efi": {"persistent": True}}},
        {"bootloader": {"efi": {}}},
    )


def _hyperv(chance: Chance) -> dict[str, Any]:
    names = (
        "vpindex",
        "runtime",
        "reset",
        "synic",
        "synictimer",
        "frequencies",
        "reenlightenment",
        "tlbflush",
        "ipi",
    )
    features = {name: chance.one({}, {"enabled": True}) for name in names if chance.happens(0.2)}
    features |= {
        name: {"enabled": False}
        for name in ("runtime", "reset", "reenlightenment")
        if chance.happens(0.1)
    }
    return features | chance.some(0.2, evmcs={})


def _placed(chance: Chance) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["here"]}]}
    required = {"nodeSelectorTerms": chance.one([term], [term, name], [{}], [term | name])}
    neighbours = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]
    affinity = chance.some(
        0.4,
        nodeAffinity=chance.one({"requiredDuringSchedulingIgnoredDuringExecution": required}, {}),
        podAffinity={"requiredDuringSchedulingIgnoredDuringExecution": neighbours},
        podAntiAffinity={"requiredDuringSchedulingIgnoredDuringExecution": neighbours},
    )
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {},
        }
    ]
    selector = chance.one(
        {"disk": "ssd"}, {"cpu-vendor.node.kubevirt.io/AMD": "true"}, {"pool": "own"}
    )
    return chance.some(
        0.3,
        affinity=affinity,
        nodeSelector=selector,
        tolerations=[{"key": "vms", "operator": "Exists"}],
        topologySpreadConstraints=spread,
        architecture=chance.one("amd64", "arm64", "s390x"),
    )


# --- instance type and preference -----------------------------------------------------------------


def _type(chance: Chance) -> dict[str, Any]:
    cpu = {"guest": chance.one(1, 2, 3, 8)} | chance.some(
        0.3,
        model="Haswell",
        dedicatedCPUPlacement=chance.happens(),
        isolateEmulatorThread=chance.happens(),
    )
    memory = {"guest": chance.one("1Gi", "1500M", "3Gi")} | chance.some(
        0.3, overcommitPercent=chance.one(5, 15, 33)
    )
    instancetype = {"cpu": cpu, "memory": memory} | chance.some(
        0.2,
        ioThreads={"supplementalPoolThreadCount": 2},
        ioThreadsPolicy="supplementalPool",
        annotations={"hooks.kubevirt.io/hookSidecars": '[{"image":"hook"}]'},
    )
    devices = chance.some(
        0.25,
        preferredAutoattachGraphicsDevice=chance.happens(),
        preferredAutoattachSerialConsole=chance.happens(),
        preferredAutoattachPodInterface=chance.happens(),
        preferredTPM=chance.one({}, {"enabled": False}),
        preferredInterfaceModel=chance.one("e1000e", "virtio"),
    )
    preferred = chance.some(
        0.4,
        preferredCPUTopology=chance.one("cores", "spread", "preferSpread", "threads", "any"),
        spreadOptions=lambda: chance.some(
            0.6,
            ratio=chance.one(2, 3),
            across=chance.one("SocketsCores", "CoresThreads", "SocketsCoresThreads"),
        ),
        preferredCPUFeatures=[
            {"name": "aes", "policy": "require"},
            {"name": "sse4", "policy": "forbid"},
        ],
    )
    preference = {"devices": devices, "cpu": preferred} | chance.some(
        0.25,
        preferSpreadSocketToCoreRatio=4,
        machine={"preferredMachineType": "pc-q35-rhel9.6"},
        features={"preferredHyperv": {"vpindex": {}, "synic": {}}},
        preferredArchitecture="arm64",
    )
    return {"instancetype": instancetype, "preference": chance.one(None, preference)}
