"""More clusters of which no node can be drained,
each for one cause that is rarer than those of ``test_causes``.
"""

from __future__ import annotations

from typing import Any, Final

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import (
    INTERFACES,
    claim,
    disk,
    kubevirt,
    node,
    storage_class,
    vm,
)
from virt_admit.forecasts.repair.repair_plan import CostClass


def domain(**fields: Any) -> dict[str, Any]:
    """Return the spec of a guest; ``devices`` are added to its interface."""
    devices = {"interfaces": INTERFACES, **fields.pop("devices", {})}
    return {"domain": {"devices": devices, "memory": {"guest": "4Gi"}, **fields}}


ON_A: Final = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
LOCAL: Final = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [ON_A]}]}}}
NOT_WITH_WEB: Final = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
}
HOST_DISK: Final = {"volumes": [{"name": "root", "hostDisk": {"path": "/disk", "type": "Disk"}}]}
EPHEMERAL: Final = {
    "volumes": [{"name": "root", "ephemeral": {"persistentVolumeClaim": {"claimName": "root"}}}]
}
IMPLIED: Final = {"domain": {"devices": {}, "memory": {"guest": "4Gi"}}, "networks": []}
BRIDGED: Final = {"network": {"defaultNetworkInterface": "bridge"}}
GPU: Final = domain(devices={"gpus": [{"name": "gpu", "deviceName": "nvidia.com/gpu"}]})
NESTED: Final = domain(cpu={"model": "Haswell", "features": [{"name": "vmx", "policy": "require"}]})
OLD_MACHINE: Final = domain(machine={"type": "pc-q35-9"})
HASWELL: Final = {"cpu-model.node.kubevirt.io/Haswell": "true"}
SLOW: Final = {"migrations": {"bandwidthPerMigration": "1Mi"}}
EFI: Final = {"bootloader": {"efi": {"secureBoot": False}}}
ENCRYPTED: Final = domain(launchSecurity={"sev": {}}, firmware=EFI)
ZERO: Final = {"parallelMigrationsPerCluster": 0}
RESTART: Final = [("restart:shop/db", CostClass.RESTART)]
COPY: Final = [("copy:shop/db", CostClass.COPY)]


def hco(version: str, spec: dict[str, Any]) -> Any:
    return manifest(
        f"hco.kubevirt.io/{version}",
        "HyperConverged",
        "kubevirt-hyperconverged",
        "kubevirt",
        spec=spec,
    )


def gate(name: str) -> Any:
    return kubevirt({"developerConfiguration": {"featureGates": [name]}})


def kept(reason: str, spec: dict[str, Any]) -> Any:
    """Return a VM that KubeVirt does not migrate for a reason."""
    return vm(spec=spec, reason=f"{reason}NotLiveMigratable")


RARE: Final[dict[str, tuple[Any, list[tuple[str, CostClass]]]]] = {
    "a shared claim on a local volume": (
        (vm(spec=disk()), claim("root", "ReadWriteMany", **LOCAL), storage_class()),
        COPY,
    ),
    "a shared claim on a hostPath volume": (
        (
            vm(spec=disk()),
            claim("root", "ReadWriteMany", hostPath={"path": "/data"}),
            storage_class(),
        ),
        COPY,
    ),
    "a disk in a file of the host": ((kept("Disks", HOST_DISK), gate("HostDisk")), RESTART),
    "an ephemeral disk over a claim": (
        (kept("Disks", EPHEMERAL), claim("root"), storage_class()),
        RESTART,
    ),
    "an implied bridge": ((kept("Interface", IMPLIED), kubevirt(BRIDGED)), RESTART),
    "a GPU": ((kept("HostDevice", GPU),), RESTART),
    "a GPU in a newer release": ((kept("HostDevice", GPU), kubevirt(version="v1.9.0")), RESTART),
    "a CPU feature": (
        (
            vm(spec=NESTED),
            node("a", {**HASWELL, "cpu-feature.node.kubevirt.io/vmx": "true"}),
            node("b", HASWELL),
        ),
        RESTART,
    ),
    "a machine type": (
        (
            vm(spec=OLD_MACHINE, vmi_status={"machine": {"type": "pc-q35-9"}}),
            node("a", {"machine-type.node.kubevirt.io/pc-q35-9": "true"}),
            node("b", {"machine-type.node.kubevirt.io/pc-q35-8": "true"}),
        ),
        RESTART,
    ),
    "Hyper-V without the frequency of the nodes": (
        (kept("NoTSCFrequency", domain(features={"hyperv": {"reenlightenment": {}}})),),
        RESTART,
    ),
    "Hyper-V passthrough": (
        (kept("HypervPassthrough", domain(features={"hypervPassthrough": {"enabled": True}})),),
        RESTART,
    ),
    "encrypted memory": ((kept("SEV", ENCRYPTED), gate("WorkloadEncryptionSEV")), RESTART),
    "labels of processors that are missing": ((vm(reason="CPUModeLiveMigratable"),), RESTART),
    "dedicated processors on one node": (
        (
            vm(spec=domain(cpu={"cores": 1, "dedicatedCpuPlacement": True})),
            node("a", {"cpumanager": "true"}),
        ),
        RESTART,
    ),
    "a VM that no node shares with another": (
        (vm(spec=NOT_WITH_WEB), vm("web", on="b")),
        [*RESTART, ("restart:shop/web", CostClass.RESTART)],
    ),
    "a snapshot in progress": (
        (
            vm(
                spec=disk(),
                reason="DisksNotLiveMigratable",
                status={"snapshotInProgress": "backup"},
            ),
            claim("root"),
            storage_class(),
        ),
        RESTART,
    ),
    "no migration starts, with an older HyperConverged": (
        (vm(), kubevirt({"migrations": ZERO}), hco("v1beta1", {"liveMigrationConfig": ZERO})),
        [("MigrationLimitZero:kubevirt/kubevirt-hyperconverged", CostClass.NOTHING)],
    ),
    "no migration starts, with HyperConverged": (
        (
            vm(),
            kubevirt({"migrations": ZERO}),
            hco("v1", {"virtualization": {"liveMigrationConfig": ZERO}}),
        ),
        [("MigrationLimitZero:kubevirt/kubevirt-hyperconverged", CostClass.NOTHING)],
    ),
    "a bandwidth with which no migration ends": (
        (vm(memory="60Gi"), kubevirt(SLOW)),
        [("MigrationTimesOut:kubevirt/kubevirt", CostClass.NOTHING)],
    ),
    "a bandwidth of HyperConverged with which none ends": (
        (
            vm(memory="60Gi"),
            kubevirt(SLOW),
            hco("v1", {"virtualization": {"liveMigrationConfig": SLOW["migrations"]}}),
        ),
        [("MigrationTimesOut:kubevirt/kubevirt-hyperconverged", CostClass.NOTHING)],
    ),
}
"""For each cause the objects, and the steps of the plan."""
