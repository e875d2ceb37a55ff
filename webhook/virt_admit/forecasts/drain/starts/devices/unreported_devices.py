"""Devices of a node that its pods use, and that it reports no more: what offers them there has stopped.

A kubelet admits no pod beyond what it reports, so less than its pods use means that their device plugin is gone. The pods keep
their devices, and no further one is given out. Sources: kubernetes/kubernetes:pkg/kubelet/cm/devicemanager/manager.go
#GetCapacity; kubevirt/kubevirt:pkg/virt-handler/device-manager/device_controller.go#updatePermittedHostDevicePlugins, issue
16602; harvester/pcidevices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import candidates, virt_handlers
from virt_admit.model import node_bridges
from virt_admit.model.commands import kubectl, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NAD, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import Pod

READS: Final[Reads] = union(
    candidates.READS,
    virt_handlers.READS,
    {KUBEVIRT: (), NAD: ("metadata.annotations.k8s.v1.cni.cncf.io/resourceName",), POD: ("spec.nodeName",)},
)

OF_KUBEVIRT: Final = "devices.kubevirt.io/"
HARVESTER: Final = "pcidevices"
"""In the name of Harvester's device plugin (harvester/pcidevices: its DaemonSet)."""
_PLUGINS: Final = (HARVESTER, "device-plugin")


class UnreportedDevice(NamedTuple):
    """A device of which a node reports less than its pods use."""

    name: str
    reported: int
    used: int
    users: tuple[str, ...]

    @property
    def words(self) -> str:
        verb = "uses" if len(self.users) == 1 else "use"
        return f"{self.reported} of {self.name}, of which {names(self.users)} {verb} {self.used}"


def of_node(node: str, cluster: Cluster) -> tuple[UnreportedDevice, ...]:
    """Return the devices that the pods of a node use, and that it no longer reports."""
    state = candidates.scheduler(cluster).state
    allocatable = state.nodes[node].allocatable if node in state.nodes else None
    if allocatable is None:
        return ()
    users: dict[str, list[Pod]] = {}
    for pod in state.pods.get(node, ()):
        for device in pod.requests:
            if "/" in device and not node_bridges.bridge(device):
                users.setdefault(device, []).append(pod)
    found = []
    for device, pods in sorted(users.items()):
        used, reported = sum(pod.requests[device] for pod in pods), allocatable.get(device, 0)
        if used > reported:
            found.append(UnreportedDevice(device, reported, used, tuple(sorted(map(user, pods)))))
    return tuple(found)


def user(pod: Pod) -> str:
    """Return the VM of a pod, else the pod, in words."""
    vm = pod.labels.get(launcher_pod.NAME)
    return f"VM {pod.namespace}/{vm}" if vm else f"pod {pod.full_name}"


def words(node: str, found: Sequence[UnreportedDevice], cluster: Cluster) -> str:
    """Return which devices a node no longer reports, and what should report them."""
    what = names([each.words for each in found], 300)
    return f"{node} offers {what}: {who(found[0].name, cluster)} there no longer reports them"


def who(device: str, cluster: Cluster) -> str:
    """Return what offers a device on its nodes, in words."""
    return "virt-handler" if is_offered_by_kubevirt(device, cluster) else "the device plugin"


def remedy(node: str, found: Sequence[UnreportedDevice], cluster: Cluster) -> str:
    """Return what makes a node report its devices again."""
    device = found[0].name
    by_kubevirt = is_offered_by_kubevirt(device, cluster)
    pod = virt_handlers.pod(cluster, node) if by_kubevirt else next(plugins(node, device, cluster), None)
    if pod is None:
        listed = shell("kubectl", "get", "pods", "-A", "-o", "wide", f"--field-selector=spec.nodeName={node}")
        return typed(f"restart {who(device, cluster)} for {device} on {node}", listed)
    again = "which reports its devices again when it starts; VMs that run go on"
    return typed(f"restart {pod.name} on {node}, {again}", kubectl("delete", POD, pod.name, pod.namespace))


def note(node: str, cluster: Cluster) -> str:
    """Return in a sentence that a node no longer reports devices which its pods use; empty: it reports all."""
    found = of_node(node, cluster)
    if not found:
        return ""
    effect = "No further VM that needs them starts here, and one that stops does not start here again"
    advice = remedy(node, found, cluster)
    return f"{words(node, found, cluster)}. {effect}. {advice[:1].upper()}{advice[1:]}"


def is_offered_by_kubevirt(device: str, cluster: Cluster) -> bool:
    """Return whether virt-handler offers a device itself: for a permitted one ``externalResourceProvider`` is not set."""
    if device.startswith(OF_KUBEVIRT):
        return True
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    if found is None:
        return False
    permitted = found.at("spec", "configuration", "permittedHostDevices")
    return any(
        item["resourceName"].text == device and item["externalResourceProvider"].boolean is not True
        for kind in ("pciHostDevices", "mediatedDevices", "usb")
        for item in permitted[kind].items()
    )


def plugins(node: str, device: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the device plugins on a node that may offer a device, the most likely first."""
    vendor = device.partition(".")[0].lower()
    of_network = any(nad.annotation("k8s.v1.cni.cncf.io/resourceName").text == device for nad in cluster.known(NAD))
    here = [
        pod
        for pod in cluster.known(POD)
        if pod.at("spec", "nodeName").text == node and any(word in pod.name for word in _PLUGINS)
    ]
    likely = ("sriov", vendor) if of_network else (HARVESTER, vendor)
    foreign = () if of_network else ("sriov",)
    for word in (*likely, "device-plugin"):
        yield from (pod for pod in here if word in pod.name and not any(other in pod.name for other in foreign))
