"""Nodes whose host has no KVM, as virtualization is off: the kubelet offers 0 of the device, and no
CPU is labelled. All labels that such a node lacks come with it.

The device plugin registers all the same and reports its devices as not healthy, so the node stays
schedulable. Sources: harvester/harvester#2407;
kubevirt/kubevirt:pkg/virt-handler/device-manager/generic_device.go#healthCheck,
:cmd/virt-launcher/node-labeller/node-labeller.sh (an init container, which looks for /dev/kvm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances.cpu_models import SKIP_NODE
from virt_admit.model.kubevirt.instances.tsc import DEMANDED
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

READS: Final[Reads] = {
    KUBEVIRT: ("spec.configuration.developerConfiguration",),
    NODE: (
        *("metadata.creationTimestamp", "metadata.labels", f"metadata.annotations.{SKIP_NODE}"),
        "status.allocatable",
    ),
}
"""Besides those of the clock, which are not kept for what is asked at admission."""
_DEVICES: Final = "devices.kubevirt.io/"
KVM: Final = f"{_DEVICES}kvm"
_LABELS: Final = ("cpu-model", "cpu-feature", "cpu-vendor", "host-model-cpu", "machine-type")
"""How the labels begin that virt-handler gives to each node with KVM."""
_MACHINE: Final = "machine type "
_EFFECTS: Final = (
    *(f"{KVM}: ", _MACHINE, "CPU feature ", "CPU model ", "host model ", "Hyper-V ", DEMANDED),
    *("an Intel processor", "AMD SEV", "Intel TDX", "real-time CPUs"),
)
"""How the causes begin for which such a node refuses a pod, which all come from this one."""
_ARCHITECTURE: Final = "kubernetes.io/arch"
_STARTED: Final = timedelta(minutes=10)
"""A new node has no labels and devices before its virt-handler has started."""
OFF: Final = f"virtualization is off there (0 {KVM}, and no CPU is labelled)"
"""Why such a node takes no VM."""
_FITS: Final = ", then see whether its CPU fits"
"""What is to be seen once it is on, as the labels that would tell it are not there."""


def is_off(name: str, cluster: Cluster) -> bool:
    """Return whether virt-handler works on a node that has no KVM, which its VMs need."""
    node = find(cluster, NODE, "", name)
    return node is not None and _is_off(node, cluster)


def seems_off(name: str, cluster: Cluster) -> bool:
    """Return the same without a look at heartbeats: where no time was recorded, a node is not
    taken for a new one.
    """
    node, now = find(cluster, NODE, "", name), clock.exact(cluster)
    created = clock.instant(node.created) if node is not None else None
    is_new = now is not None and created is not None and now - created < _STARTED
    return node is not None and not is_new and _offers_none(node, cluster)


def _is_off(node: Object, cluster: Cluster) -> bool:
    off = _offers_none(node, cluster)
    return off and clock.has_lasted(node.created, _STARTED, cluster)


def _offers_none(node: Object, cluster: Cluster) -> bool:
    offered = node.at("status", "allocatable").map
    works = any(name.startswith(_DEVICES) and str(offered[name]) != "0" for name in offered)
    if str(offered.get(KVM)) != "0" or not works or node.labels.get(SCHEDULABLE) != "true":
        return False
    if SKIP_NODE in node.annotations or any(each.startswith(_LABELS) for each in node.labels):
        return False
    kubevirt = configuration.known_or_none(configuration.kubevirt_in_effect, cluster)
    developer = ("spec", "configuration", "developerConfiguration")
    return kubevirt is not None and not kubevirt.at(*developer, "useEmulation").boolean


def found(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes on which virtualization is off."""
    return tuple(sorted(node.name for node in cluster.known(NODE) if _is_off(node, cluster)))


def told(causes: str) -> str:
    """Return why such a node refuses a pod: its cause instead of all that comes from it."""
    return "; ".join((f"{OFF}{_FITS if hides_cpu(causes) else ''}", *_others(causes)))


def hides_cpu(causes: str) -> bool:
    """Return whether some of the causes would tell whether the CPU fits, if it were labelled.

    KVM and the machine types come from the host and its emulator, whatever the CPU is.
    """
    effects = (each for each in causes.split("; ") if each.startswith(_EFFECTS))
    return any(not each.startswith((f"{KVM}: ", _MACHINE)) for each in effects)


def _others(causes: str) -> list[str]:
    return [each for each in causes.split("; ") if not each.startswith(_EFFECTS)]


def opened(refusals: Mapping[str, str], cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes that refuse a pod for nothing else."""
    alone = (name for name, causes in refusals.items() if not _others(causes))
    return tuple(sorted(name for name in alone if is_off(name, cluster)))


def words(nodes: Sequence[str]) -> str:
    """Return that virtualization is off on nodes, and what shows it."""
    return (
        f"virtualization is off on {names(nodes)}: the kubelet offers 0 {KVM} there, and "
        "virt-handler has labelled no CPU"
    )


def way(nodes: Sequence[str], cluster: Cluster) -> str:
    """Return what switches virtualization on."""
    known = [find(cluster, NODE, "", name) for name in nodes]
    is_amd64 = all(each and each.labels.get(_ARCHITECTURE) == "amd64" for each in known)
    module = ", with module kvm_intel or kvm_amd" if is_amd64 else ""
    return (
        f"switch on hardware virtualization for {names(nodes)}: in the firmware{module}, and "
        "nested in the hypervisor below if they are VMs themselves"
    )
