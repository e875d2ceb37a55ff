"""Reports about migrations and starts that repeat the same failure, each with what ends it."""

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, conditions

from .machines import NO, YES, Incident, draining, failed, find, guest, launcher_of

KUBEVIRT = "https://github.com/kubevirt/kubevirt"

REFUSED_BY_QEMU = (
    "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
    "virError(Code=1, Domain=10, Message='internal error: QEMU unexpectedly closed the monitor "
    "(vm='vms_web'): 2026-08-01T22:06:36.625034Z qemu-kvm: Features 0x1c0010130afffaf unsupported. "
    "Allowed features: 0x10179bfffef 2026-08-01T22:06:36.625083Z qemu-kvm: Failed to load "
    "virtio-net:virtio 2026-08-01T22:06:36.625087Z qemu-kvm: error while loading state for "
    "instance 0x0 of device '0000:00:02.0:00.0/virtio-net' 2026-08-01T22:06:36.625392Z qemu-kvm: "
    "load of migration failed: Invalid argument')"
)


def older_devices() -> Incident:
    """An update of KubeVirt brought a QEMU that does not offer what the running guests have
    negotiated.
    """
    items = draining((1, 7))
    find(items, "VirtualMachineInstance", "web")["metadata"]["labels"][
        "kubevirt.io/outdatedLauncherImage"
    ] = ""
    failed(items, "web", REFUSED_BY_QEMU, ("w2", "w3", "w2"), lasted=3)
    facts = (r"Features 0x1c0010130afffaf unsupported", r"virtio-net", r"virtctl restart web")
    return Incident("older-devices", f"{KUBEVIRT}/issues/16386", items, NO, facts)


def copy_that_did_not_end() -> Incident:
    """The node was lost while KubeVirt copied a disk; the VM names the copy."""
    items = plain((1, 6)) + guest("db", "w1", (1, 6))
    items = [each for each in items if each["metadata"]["name"] != "virt-launcher-db-k2x7q"]
    items = [
        each
        for each in items
        if (each["kind"], each["metadata"]["name"]) != ("VirtualMachineInstance", "db")
    ]
    vm = find(items, "VirtualMachine", "db")
    vm["spec"] |= {"runStrategy": "Always", "updateVolumesStrategy": "Migration"}
    moved = {
        "volumeName": "db",
        "sourcePVCInfo": {"claimName": "db-old"},
        "destinationPVCInfo": {"claimName": "db"},
    }
    vm["status"] = {
        "printableStatus": "Stopped",
        "conditions": conditions(ManualRecoveryRequired=True),
        "volumeUpdateState": {"volumeMigrationState": {"migratedVolumes": [moved]}},
    }
    facts = (
        r"ManualRecoveryRequired",
        r"name the former claim db-old for volume db again.*: kubectl edit vm db -n vms",
    )
    return Incident(
        "copy-that-did-not-end", f"{KUBEVIRT}/pull/12864", items, YES, facts, ("explain", "vm/db")
    )


def power_cycle() -> Incident:
    """The node was power-cycled and is back, but its kubelet does not end the old pod."""
    items = plain((1, 6)) + guest("db", "w1", (1, 6))
    find(items, "VirtualMachineInstance", "db")["status"]["phase"] = "Failed"
    old = launcher_of(items, "db")
    old["metadata"] |= {"deletionTimestamp": ago(minutes=39), "deletionGracePeriodSeconds": 30}
    old["status"] |= {"phase": "Failed", "conditions": conditions(Ready=False)}
    facts = (
        r"no new one is made before its pod on w1 is gone",
        r"kubectl describe pod virt-launcher-db-k2x7q",
    )
    source = "https://github.com/kubernetes/kubernetes/issues/122960"
    return Incident("power-cycle", source, items, NO, facts, ("explain", "vm/db"))


def incidents() -> list[Incident]:
    return [older_devices(), copy_that_did_not_end(), power_cycle()]
