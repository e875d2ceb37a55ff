"""Random VMs and VMIs with all that decides on their admission, migration and eviction;
a seed names a case.
"""

from __future__ import annotations

from typing import Any, Final

from tests.upstream.admission_types import OPT_IN, inherited, switch
from tests.upstream.launcher_cases import NAMESPACE, Chance

RELEASE: Final = "v1.8.0"
_GATES: Final = (
    *(
        "HostDisk",
        "Sidecar",
        "HostDevices",
        "PersistentReservation",
        "WorkloadEncryptionSEV",
        "WorkloadEncryptionTDX",
    ),
    *("SecureExecution", "EnableVirtioFsStorageVolumes", "PasstBinding", "CPUManager"),
)
"""Gates that let virt-api admit more."""
_JUDGED_GATES: Final = (
    *(
        "DecentralizedLiveMigration",
        "RebootPolicy",
        "HypervStrictCheck",
        "ImageVolume",
        "AlignCPUs",
    ),
    *("VGPULiveMigration", "ConfigurableHypervisor"),
)
_MODES: Final = (
    ["ReadWriteMany"],
    ["ReadWriteMany"],
    ["ReadWriteOnce"],
    ["ReadWriteOnce", "ReadWriteMany"],
    ["ReadOnlyMany"],
)
_PLUGINS: Final = {
    "moves": {"migration": {}, "networkAttachmentDefinition": "default/moves"},
    "stays": {"sidecarImage": "stays"},
}


def case(seed: int) -> dict[str, Any]:
    """Return a case for ``admission/main.go``."""
    chance = Chance(seed)
    claims = {f"claim{index}": chance.one(*_MODES) for index in range(4)}
    template = _template(chance, claims)
    subject, objects = (
        _vm(chance, template, claims) if chance.happens(0.88) else (_vmi(template), [])
    )
    volumes = [volume["name"] for volume in template["spec"]["volumes"]]
    migrated = [name for name in volumes if chance.happens()] if chance.happens(0.06) else []
    if subject["kind"] != "VirtualMachine":
        migrated = []  # a volume migration needs a VM
    elif migrated:
        copied = [{"volumeName": name} for name in migrated]
        subject.setdefault("status", {})["volumeUpdateState"] = {
            "volumeMigrationState": {"migratedVolumes": copied}
        }
    return {
        "kubevirt": _kubevirt(chance),
        "objects": [*objects, *map(_claim, claims.items()), *_nodes(chance), *_vmis(chance)],
        "subject": subject,
        "migrated": migrated,
        "reported": chance.one("", "", "", "", "True", "False", "Unknown"),
    }


def _claim(given: tuple[str, Any]) -> dict[str, Any]:
    name, modes = given
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"accessModes": modes},
    }


# --- the cluster ----------------------------------------------------------------------------------


def _kubevirt(chance: Chance) -> dict[str, Any]:
    gates = [gate for gate in _GATES if chance.happens(0.9)] + [
        gate for gate in _JUDGED_GATES if chance.happens(0.35)
    ]
    developer = {"featureGates": gates} | chance.some(
        0.1,
        minimumClusterTSCFrequency=chance.one(2_000_000_000, 1, 0, -5),
        disabledFeatureGates=[gate for gate in _JUDGED_GATES if chance.happens(0.3)],
    )
    network: dict[str, Any] = {"binding": _PLUGINS} | chance.some(
        0.4,
        defaultNetworkInterface=chance.one("masquerade", "bridge", "masquerade", ""),
        permitBridgeInterfaceOnPodNetwork=chance.happens(0.8),
    )
    devices = [
        {"resourceName": f"example.com/{name}", "mdevNameSelector": name}
        for name in ("vgpu", "other")
    ]
    configuration = {
        "developerConfiguration": developer,
        "network": network,
        "supportedGuestAgentVersions": ["4.*"],
    }
    configuration |= chance.some(
        0.4,
        evictionStrategy=chance.one(
            "LiveMigrate", "LiveMigrateIfPossible", "None", "External", "Other"
        ),
        permittedHostDevices={
            "mediatedDevices": devices,
            "pciHostDevices": [{"pciVendorSelector": "1:1", "resourceName": "example.com/pci"}],
        },
        cpuModel=chance.one("Haswell", "host-passthrough", "host-model", ""),
        vmRolloutStrategy=chance.one("LiveUpdate", "Stage"),
    )
    if chance.happens(0.03):
        developer |= chance.some(
            0.4,
            cpuAllocationRatio=-1,
            memoryOvercommit=chance.one(-1, 0),
            pvcTolerateLessSpaceUpToPercent=chance.one(101, 100),
        )
        network |= chance.some(0.4, defaultNetworkInterface=chance.one("passt", "slirp"))
        configuration |= chance.some(0.4, imagePullPolicy=chance.one("Sometimes", "Always"))
    status = {"observedKubeVirtVersion": RELEASE} | chance.some(
        0.97, defaultArchitecture=chance.one("amd64", "amd64", "amd64", "arm64", "s390x")
    )
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": configuration},
        "status": status,
    }


def _nodes(chance: Chance) -> list[Any]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": chance.some(
                    0.5,
                    **{
                        "kubevirt.io/schedulable": chance.one("true", "true", "false"),
                        "cpu-timer.node.kubevirt.io/tsc-frequency": chance.one(
                            "2000000000", "2100000000", "0", "-1", "x", ""
                        ),
                        "cpu-timer.node.kubevirt.io/tsc-scalable": chance.one("true", "false"),
                    },
                ),
            },
        }
        for name in ("here", "there")[: chance.one(1, 1, 2)]
    ]


def _vmis(chance: Chance) -> list[Any]:
    metadata = {"name": "other", "namespace": "other"}
    status = {
        "phase": chance.one("Running", "Succeeded"),
        "nodeName": chance.one("here", "there", "gone"),
    }
    other = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": {"domain": {"devices": {}}},
    }
    return [other | {"status": status}] if chance.happens(0.3) else []


# --- the VM ---------------------------------------------------------------------------------------


def _vmi(template: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "vm", "namespace": NAMESPACE} | template["metadata"]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": template["spec"],
    }


def _vm(
    chance: Chance, template: dict[str, Any], claims: dict[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    spec = _run_strategy(chance) | {"template": template}
    objects: list[Any] = []
    status: dict[str, Any] = {}
    for word, share in (("instancetype", 0.3), ("preference", 0.35)):
        if chance.happens(share):
            if word == "instancetype" and chance.happens(0.95):
                _leave_sizes_out(template["spec"]["domain"])
            found, matcher, reference = inherited(chance, word)
            objects += found
            spec[word] = matcher
            status |= reference
    if chance.happens(0.3):
        spec["dataVolumeTemplates"], sources = _data_volumes(chance, claims, template)
        objects += sources
    annotations = chance.some(0.1, **{OPT_IN: "true"})
    metadata = {"name": "vm", "namespace": NAMESPACE, "annotations": annotations}
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": spec,
    }
    return vm | ({"status": status} if status else {}), objects


def _leave_sizes_out(domain: dict[str, Any]) -> None:
    """Remove what a VM with an instance type must not set."""
    domain.pop("memory", None)
    cpu = {key: value for key, value in domain.pop("cpu", {}).items() if key == "features"}
    domain |= {"cpu": cpu} if cpu else {}


def _run_strategy(chance: Chance) -> dict[str, Any]:
    names = ("Always", "RerunOnFailure", "Manual", "Once", "Halted", "WaitAsReceiver")
    odd = ("always", "Stopped", "", "Running", "RunOnce")
    if chance.happens(0.85):
        return {"runStrategy": chance.one(*names, "Always", "Always")}
    return chance.one(
        {"running": chance.happens()},
        {"running": chance.happens(), "runStrategy": chance.one(*names)}, {},
        {"runStrategy": chance.one(*odd)}, {"running": True},
    )  # fmt: skip


def _data_volumes(
    chance: Chance, claims: dict[str, Any], template: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Return templates of data volumes for the claims that the VM uses as such,
    and the DataSources that they name.
    """
    named = [
        volume["dataVolume"]["name"]
        for volume in template["spec"]["volumes"]
        if "dataVolume" in volume
    ]
    found = []
    for name in dict.fromkeys(named):
        block = {"accessModes": claims[name], "resources": {"requests": {"storage": "1Gi"}}}
        reference = {
            "kind": chance.one("DataSource", "datasource", "DataSource"),
            "name": chance.one("linux", "linked", "absent"),
        }
        reference |= chance.some(0.5, namespace=chance.one(NAMESPACE, "images"))
        source = {"source": {"blank": {}}} if chance.happens(0.3) else {"sourceRef": reference}
        found.append(
            {"metadata": {"name": name}, "spec": {chance.one("pvc", "storage"): block} | source}
        )
    linked = {"dataSource": {"name": "linux", "namespace": chance.one(NAMESPACE, "images")}}
    plain = {"pvc": {"name": "a", "namespace": "b"}}
    names = [
        (name, namespace) for namespace in (NAMESPACE, "images") for name in ("linux", "linked")
    ]
    sources = [
        _data_source(chance, name, namespace, linked if name == "linked" else plain)
        for name, namespace in names
        if chance.happens(0.8)
    ]
    return found, sources


def _data_source(
    chance: Chance, name: str, namespace: str, source: dict[str, Any]
) -> dict[str, Any]:
    architecture = {
        "template.kubevirt.io/architecture": chance.one("arm64", "s390x", "amd64", "mips")
    }
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataSource",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": chance.some(0.6, **architecture),
        },
        "spec": {"source": source},
    }


def _template(chance: Chance, claims: dict[str, Any]) -> dict[str, Any]:
    volumes, disks, filesystems = _volumes(chance, claims)
    devices: dict[str, Any] = {"disks": disks, "filesystems": filesystems} | _devices(chance)
    spec: dict[str, Any] = {"domain": {"devices": devices} | _domain(chance), "volumes": volumes}
    if chance.happens(0.65):
        spec["networks"], devices["interfaces"] = _networks(chance)
    spec |= (
        chance.some(0.7, evictionStrategy=_eviction_strategy(chance)) if chance.happens(0.9) else {}
    )
    spec |= chance.some(
        0.12,
        architecture=chance.one("amd64", "amd64", "arm64", "s390x", "ppc64le", ""),
        nodeSelector={"a": "b"},
    )
    return {
        "metadata": {"annotations": chance.some(0.12, **{OPT_IN: chance.one("", "true", "false")})},
        "spec": spec,
    }


def _eviction_strategy(chance: Chance) -> Any:
    if chance.happens(0.05):
        return chance.one("livemigrate", "", "Evict", "shutdown")
    return chance.one("LiveMigrate", "LiveMigrate", "LiveMigrateIfPossible", "None", "External")


def _domain(chance: Chance) -> dict[str, Any]:
    domain: dict[str, Any] = chance.some(0.9, memory={"guest": "1Gi"})
    if chance.happens(0.6):
        cpu = chance.some(
            0.3,
            cores=chance.one(1, 2),
            model=chance.one("Haswell", "host-model", "host-passthrough"),
        )
        cpu |= chance.some(0.15, dedicatedCpuPlacement=True, isolateEmulatorThread=chance.happens())
        names = [name for name in ("invtsc", "apic") if chance.happens(0.15)]
        features = [
            {"name": name}
            | chance.some(
                0.8, policy=chance.one("require", "force", "optional", "forbid", "disable")
            )
            for name in names
        ]
        domain["cpu"] = cpu | ({"features": features} if features else {})
    if chance.happens(0.1):
        domain["memory"] = {"guest": "1Gi", "hugepages": {"pageSize": chance.one("2Mi", "1Gi")}}
    if chance.happens(0.3):
        domain["features"] = chance.some(
            0.5,
            hyperv=chance.some(
                0.5,
                reenlightenment=switch(chance),
                vpindex=switch(chance),
                frequencies=switch(chance),
            ),
        ) | chance.some(
            0.15, hypervPassthrough=chance.one({"enabled": True}, {"enabled": False}, {})
        )
    security = chance.one(
        {"sev": {}}, {"snp": {}}, {"tdx": {}}, {"sev": {"policy": {"encryptedState": True}}}, {}
    )
    firmware = {"bootloader": {"efi": {"secureBoot": False} | chance.some(0.4, persistent=True)}}
    domain |= chance.some(
        0.08,
        launchSecurity=security,
        firmware=firmware,
        rebootPolicy=chance.one("Terminate", "Reboot"),
    )
    return domain | chance.some(
        0.06, machine={"type": chance.one("q35", "pc-q35-rhel9.4", "virt", "s390-ccw-virtio")}
    )


def _devices(chance: Chance) -> dict[str, Any]:
    names = ("example.com/vgpu", "example.com/other", "example.com/pci", "example.com/unknown")
    devices = chance.some(
        0.07,
        gpus=[
            {"name": f"gpu{index}", "deviceName": chance.one(*names)}
            for index in range(chance.one(0, 1, 1, 2))
        ],
        hostDevices=[{"name": "device", "deviceName": chance.one(*names)}] * chance.one(0, 1, 1),
        tpm=chance.one({}, {"persistent": True}, {"enabled": False}),
    )
    return devices | chance.some(0.15, autoattachPodInterface=chance.happens())


def _networks(chance: Chance) -> tuple[list[Any], list[Any]]:
    networks, interfaces = [], []
    for index in range(chance.one(1, 1, 1, 2)):
        pod = index == 0 and chance.happens(0.9)
        of_pod = {"pod": chance.one({}, {}, {"vmNetworkCIDR": "10.0.0.0/24"})}
        networks.append(
            {"name": f"net{index}"} | (of_pod if pod else {"multus": {"networkName": "nad"}})
        )
        binding = chance.one(
            *[{"masquerade": {}} if pod else {"bridge": {}}] * 6, {"bridge": {}}, {"bridge": {}},
            {"sriov": {}},
            {"passtBinding": {}}, {"binding": {"name": chance.one("moves", "stays", "absent")}}, {},
            {chance.one("slirp", "macvtap", "passt", "masquerade"): {}},
        )  # fmt: skip
        interfaces.append({"name": f"net{index}"} | binding)
    if chance.happens(0.03):
        interfaces.pop()
    return networks, interfaces


def _volumes(chance: Chance, claims: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    volumes, disks, filesystems = [], [], []
    for index in range(chance.one(0, 1, 1, 2, 3)):
        claim = f"claim{index}"
        source = chance.one(
            {"persistentVolumeClaim": {"claimName": claim}},
            {"persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}},
            {"dataVolume": {"name": claim}},
            {"dataVolume": {"name": claim}},
            {"containerDisk": {"image": "image:1"}},
            {"emptyDisk": {"capacity": "1Gi"}},
            {
                "hostDisk": {"path": "/a", "type": "Disk"}
                | chance.some(0.5, shared=chance.happens())
            },
            {"ephemeral": {"persistentVolumeClaim": {"claimName": claim}}},
            {"cloudInitNoCloud": {"userData": "#cloud-config"}},
            {"configMap": {"name": "a"}},
        )
        if chance.happens(0.02):
            source = {"persistentVolumeClaim": {"claimName": ""}}
        name = f"disk{index}"
        volumes.append({"name": name} | source)
        if chance.happens(0.16):
            filesystems.append({"name": name, "virtiofs": {}})
        else:
            is_claim = bool({"persistentVolumeClaim", "dataVolume"} & source.keys())
            disks.append({"name": name} | _disk(chance, is_claim=is_claim))
    return volumes, disks, filesystems


def _disk(chance: Chance, *, is_claim: bool) -> dict[str, Any]:
    kind = chance.one("disk", "disk", "disk", "cdrom", "lun" if is_claim else "disk")
    if kind == "lun":
        return {kind: {"bus": "scsi"} | chance.some(0.6, reservation=chance.happens(0.8))}
    return {kind: {"bus": chance.one("scsi", "sata" if kind == "cdrom" else "virtio")}}
