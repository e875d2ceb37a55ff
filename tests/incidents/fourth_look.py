"""Reports about migrations and starts that repeat the same failure, each with what ends it."""

from .machines import NO, Incident, draining, failed, find

KUBEVIRT = "https://github.com/kubevirt/kubevirt"

REFUSED_BY_QEMU = (
    "Live migration failed error encountered during MigrateToURI3 libvirt api call: virError(Code=1, Domain=10, "
    "Message='internal error: QEMU unexpectedly closed the monitor (vm='vms_web'): 2026-08-01T22:06:36.625034Z "
    "qemu-kvm: Features 0x1c0010130afffaf unsupported. Allowed features: 0x10179bfffef 2026-08-01T22:06:36.625083Z "
    "qemu-kvm: Failed to load virtio-net:virtio 2026-08-01T22:06:36.625087Z qemu-kvm: error while loading state for "
    "instance 0x0 of device '0000:00:02.0:00.0/virtio-net' 2026-08-01T22:06:36.625392Z qemu-kvm: load of migration "
    "failed: Invalid argument')"
)


def older_devices() -> Incident:
    """An update of KubeVirt brought a QEMU that does not offer what the running guests have negotiated."""
    items = draining((1, 7))
    find(items, "VirtualMachineInstance", "web")["metadata"]["labels"]["kubevirt.io/outdatedLauncherImage"] = ""
    failed(items, "web", REFUSED_BY_QEMU, ("w2", "w3", "w2"), lasted=3)
    facts = (r"Features 0x1c0010130afffaf unsupported", r"virtio-net", r"virtctl restart web")
    return Incident("older-devices", f"{KUBEVIRT}/issues/16386", items, NO, facts)


def incidents() -> list[Incident]:
    return [older_devices()]
