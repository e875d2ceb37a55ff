"""Devices of a node that its pods use, and that it reports no more:
what offers them there has stopped.

A kubelet admits no pod beyond what it reports, so none where its pods use some means that their
device plugin is gone, and fewer that some are not healthy. The pods keep their devices, and no
further one is given out. Sources:
kubernetes/kubernetes:pkg/kubelet/cm/devicemanager/manager.go#GetCapacity;
kubevirt/kubevirt:pkg/virt-handler/device-manager/device_controller.go#updatePermittedHostDevicePlugins,
issue 16602; harvester/pcidevices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement import candidates, virt_handlers
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.components.drivers.missing_device_files import (
    PCI_DEVICE,
    PCI_DEVICE_CLAIM,
)
from virt_admit.forecasts.placement.refusals import affinity_partners
from virt_admit.model import node_bridges
from virt_admit.model.commands import kubectl, logs_of, pods_on, typed
from virt_admit.model.kubernetes import clock, kinds, node_health
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NAD, NODE, POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import fields, find, grouped
from virt_admit.model.messages import capital, count, names
from virt_admit.model.node_updates.operators import device_operators, paused_operands
from virt_admit.model.node_updates.operators.paused_operands import PausedOperand
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import amount

_RESOURCE: Final = "k8s.v1.cni.cncf.io/resourceName"
READS: Final[Reads] = union(
    candidates.READS,
    virt_handlers.READS,
    paused_operands.READS,
    {
        KUBEVIRT: (),
        NAD: (f"metadata.annotations.{_RESOURCE}",),
        NODE: ("metadata.labels", "status.capacity"),
        POD: (
            "metadata.creationTimestamp",
            "spec.nodeName",
            "status.conditions.lastTransitionTime",
            "status.conditions.status",
            "status.conditions.type",
        ),
    },
)

OF_KUBEVIRT: Final = "devices.kubevirt.io/"
HARVESTER: Final = "pcidevices"
"""In the name of Harvester's device plugin (harvester/pcidevices: its DaemonSet)."""
USB_DEVICE, VGPU_DEVICE = (
    kinds.guess("devices.harvesterhci.io/v1beta1", kind)._replace(namespaced=False)
    for kind in ("USBDevice", "VGPUDevice")
)
"""Of Harvester. In a live cluster discovery finds them."""
_PLUGINS: Final = (HARVESTER, "device-plugin", "gpu-dp", "gpu-plugin")
"""In the names of device plugins; ``gpu-dp`` is that of NVIDIA for KubeVirt,
``gpu-plugin`` that of Intel.
"""
_MISSING: Final = " missing"
_MOST: Final = 3
_SETTLES_WITHIN: Final = timedelta(minutes=5)
"""How long a kubelet waits for a device plugin that was replaced (types.go of its devicemanager:
endpointStopGracePeriod).
"""


class UnreportedDevice(NamedTuple):
    """A device of which a node reports less than its pods use."""

    name: str
    reported: int
    used: int
    users: tuple[str, ...]
    capacity: int = 0
    """With the devices that are not healthy; 0 if it is not known."""

    @property
    def unhealthy(self) -> int:
        """How many devices are known not to be healthy, at least, while their plugin reports them;
        0: it reports none.
        """
        if self.capacity > self.reported:
            return self.capacity - self.reported
        return self.used - self.reported if self.reported else 0

    @property
    def words(self) -> str:
        verb = "uses" if len(self.users) == 1 else "use"
        return f"{self.reported} of {self.name}, of which {names(self.users)} {verb} {self.used}"


def of_node(node: str, cluster: Cluster) -> tuple[UnreportedDevice, ...]:
    """Return the devices that the pods of a node use, and that it no longer reports.

    None while what offers them starts.
    """
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
        if used > reported and not may_start(node, device, cluster):
            users_of = tuple(sorted(map(affinity_partners.title, pods)))
            found.append(
                UnreportedDevice(device, reported, used, users_of, _capacity(node, device, cluster))
            )
    return tuple(found)


def passed_through(device: str, cluster: Cluster) -> frozenset[str]:
    """Return the nodes on which Harvester passes devices of this name through to VMs: those of a
    PCI device by its claim, that of a USB device by its own status (usbdevice_claim_controller.go).
    """
    claimed = (
        claim.at("spec", "nodeName").text
        for claim in cluster.known(PCI_DEVICE_CLAIM)
        if claim.at("status", "passthroughEnabled").boolean
        and (own := find(cluster, PCI_DEVICE, "", claim.name)) is not None
        and own.at("status", "resourceName").text == device
    )
    enabled = (
        usb.at("status", "nodeName").text
        for usb in cluster.known(USB_DEVICE)
        if usb.at("status", "enabled").boolean and usb.at("status", "resourceName").text == device
    )
    return frozenset(filter(None, (*claimed, *enabled)))


def _capacity(node: str, device: str, cluster: Cluster) -> int:
    capacity = fields(cluster, NODE, "", node).at("status", "capacity")
    return amount(device, capacity[device].value)


def may_start(node: str, device: str, cluster: Cluster) -> bool:
    """Return whether a node came back, its kubelet started, or what offers a device there was
    replaced, so short ago that it may still report it.
    """
    for back in (virt_handlers.returned(cluster, node), node_health.kubelet_started(node, cluster)):
        if back is not None and back < _SETTLES_WITHIN:
            return True
    pod = _offerer(node, device, cluster)
    if pod is None:
        return False
    if is_offered_by_kubevirt(device, cluster) and virt_handlers.is_starting(cluster, node):
        return True
    times = (pod.created, pod.condition("Ready")["lastTransitionTime"].text)
    return any(
        (age := clock.since(time, cluster)) is not None and age < _SETTLES_WITHIN for time in times
    )


def _offerer(node: str, device: str, cluster: Cluster) -> Object | None:
    if is_offered_by_kubevirt(device, cluster):
        return virt_handlers.pod(cluster, node)
    return next(plugins(node, device, cluster), None)


def words(node: str, found: Sequence[UnreportedDevice], cluster: Cluster) -> str:
    """Return which devices a node no longer reports, and what should report them."""
    gone = [each for each in found if not each.unhealthy]
    ill = [each for each in found if each.unhealthy]
    alike = grouped(gone, lambda each: (each.reported, each.used, each.users))
    what = names(map(_together, alike.values()), 300)
    paused = _paused(node, gone[0].name, cluster) if gone else None
    why = f"{who(gone[0].name, cluster)} there no longer reports them" if gone else ""
    if paused is not None:
        label = f"{paused.key}={paused.value}"
        why = f"the GPU operator has taken the device plugin away there ({label})"
        why += "".join(f", {each}" for each in (paused.by, paused.left) if each)
    said = [f"{node} offers {what}: {why}"] if gone else []
    said += [f"{node} offers {each.words}: {_not_healthy(each.unhealthy)}" for each in ill]
    return "; ".join(said)


def _paused(node: str, device: str, cluster: Cluster) -> PausedOperand | None:
    """Return the label by which the device plugin of a device was taken from a node."""
    found = find(cluster, NODE, "", node)
    return paused_operands.of_plugin(found, device, cluster) if found is not None else None


def _together(alike: Sequence[UnreportedDevice]) -> str:
    """Return the words about devices that the same pods use alike."""
    every = " of each" if len(alike) > 1 else ""
    return f"{alike[0]._replace(name=names(each.name for each in alike)).words}{every}"


def _not_healthy(number: int) -> str:
    return f"{count(number, 'device')} {'is' if number == 1 else 'are'} not healthy"


def who(device: str, cluster: Cluster) -> str:
    """Return what offers a device on its nodes, in words."""
    return "virt-handler" if is_offered_by_kubevirt(device, cluster) else "the device plugin"


def remedy(node: str, found: Sequence[UnreportedDevice], cluster: Cluster) -> str:
    """Return what makes a node report its devices again.

    To restart what reports some of them does not heal the others.
    """
    lost = next((each for each in found if not each.unhealthy), None)
    device = lost.name if lost is not None else found[0].name
    if lost is not None and (paused := _paused(node, device, cluster)) is not None:
        return paused.remedy
    pod = _offerer(node, device, cluster)
    if pod is None:
        begin = "restart" if lost is not None else "see the log of"
        return typed(f"{begin} {who(device, cluster)} for {device} on {node}", pods_on(node))
    if lost is None or pod.condition("Ready")["status"].text == "False":
        what = "is not ready" if lost is not None else f"finds devices of {device} not healthy"
        return typed(f"see why {pod.name} on {node} {what}", logs_of(pod))
    again = "which reports its devices again when it starts; VMs that run go on"
    return typed(
        f"restart {pod.name} on {node}, {again}", kubectl("delete", POD, pod.name, pod.namespace)
    )


def note(node: str, cluster: Cluster) -> str:
    """Return in a sentence that a node no longer reports devices which its pods use; empty:
    it reports all.
    """
    found = tuple(each for each in of_node(node, cluster) if not _is_told(node, each, cluster))
    if not found:
        return ""
    effect = (
        "No further VM that needs them starts here, and one that stops does not start here again"
    )
    said = filter(None, (words(node, found, cluster), _waiting(node, found, cluster), effect))
    return f"{'. '.join(said)}. {capital(remedy(node, found, cluster))}"


def _waiting(node: str, found: Sequence[UnreportedDevice], cluster: Cluster) -> str:
    """Return which VMs lack nothing else on a node than these devices; empty: none is known to."""
    lost = {each.name for each in found}
    waiting = [
        each
        for each in cluster.cached(_unplaced)
        if all(
            cause.endswith(_MISSING) and cause.partition(": ")[0] in lost
            for cause in each.target.placement.refusals.get(node, "").split("; ")
        )
    ]
    said = [_waits(each, sorted(lost), cluster) for each in waiting[:_MOST]]
    more = len(waiting) - len(said)
    return "; ".join((*said, *[f"{more} more wait"] * bool(more)))


def _waits(each: _Unplaced, lost: Sequence[str], cluster: Cluster) -> str:
    demanded = each.target.pod.requests
    needs = names(f"{demanded[name]} of {name}" for name in lost if demanded.get(name))
    lasts = vm_states_times.lasting(clock.instant(each.pod.created), cluster)
    return f"VM {each.vmi.full_name}, which needs {needs}, has been Pending {lasts}"


class _Unplaced(NamedTuple):
    """A VM whose pod has no node, and that none takes now."""

    vmi: Object
    pod: Object
    target: SchedulingTarget


def _unplaced(cluster: Cluster) -> Sequence[_Unplaced]:
    found = []
    for pod in filter(_is_pending, cluster.known(POD)):
        vmi = find(cluster, VMI, pod.namespace or "", pod.labels.get(launcher_pod.NAME) or "")
        if vmi is not None and not vmis.running(vmi):
            found.append(_Unplaced(vmi, pod, candidates.target(vmi, cluster, moves=False)))
    return [each for each in found if not each.target.placement.has_candidate]


def _is_pending(pod: Object) -> bool:
    scheduled = pod.condition("PodScheduled")["status"].text
    return not pod.at("spec", "nodeName").text and not pod.ended and scheduled == "False"


def _is_told(node: str, device: UnreportedDevice, cluster: Cluster) -> bool:
    """Return whether the cordon of a node for a driver upgrade tells why a device is absent."""
    found = find(cluster, NODE, "", node)
    upgraded = found is not None and device_operators.driver_upgrade(found, cluster) is not None
    return upgraded and _paused(node, device.name, cluster) is not None


def is_offered_by_kubevirt(device: str, cluster: Cluster) -> bool:
    """Return whether virt-handler offers a device itself: for a permitted one
    ``externalResourceProvider`` is not set.
    """
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


def _of_networks(cluster: Cluster) -> frozenset[str]:
    """Return the devices of the networks of pods."""
    found = (nad.annotation(_RESOURCE).text for nad in cluster.known(NAD))
    return frozenset(filter(None, found))


def _plugins(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return by node the pods that are device plugins by their names."""
    every = (pod for pod in cluster.known(POD) if any(word in pod.name for word in _PLUGINS))
    return grouped(every, lambda pod: pod.at("spec", "nodeName").text or "")


def plugins(node: str, device: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the device plugins on a node that may offer a device, the most likely first."""
    vendor = device.partition(".")[0].lower()
    of_network = device in cluster.cached(_of_networks)
    here = entry(cluster, _plugins, node) or ()
    likely = ("sriov", vendor) if of_network else (HARVESTER, vendor)
    foreign = () if of_network else ("sriov",)
    for word in (*likely, "device-plugin"):
        yield from (
            pod
            for pod in here
            if word in pod.name and not any(other in pod.name for other in foreign)
        )
