"""Host devices that a VM asks for and that KubeVirt does not permit, so that virt-controller
renders no pod for it.

The list is in the KubeVirt object, which the HyperConverged object overwrites where there is one.
On Harvester the pcidevices-controller writes it, and does so again when it starts. Sources:
kubevirt/kubevirt:pkg/virt-controller/services/ template.go#validatePermittedHostDevices;
kubevirt/hyperconverged-cluster-operator:api/v1beta1/hyperconverged_types.go #PermittedHostDevices;
harvester/pcidevices; issues harvester/harvester#11355 #6733.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.forecasts.drain.starts.devices import unreported_devices
from virt_admit.forecasts.placement.components.drivers.missing_device_files import PCI_DEVICE
from virt_admit.model.commands import about, json_patch, kubectl, merge_patch, nested, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE, POD, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.running_release import may_be_managed
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    unreported_devices.READS,
    {KUBEVIRT: (), HCO: (), NODE: ("status.allocatable",), POD: ("spec.nodeName",)},
)

_SAID: Final = re.compile(r"(HostDevice|GPU) (\S{1,320}) is not permitted in permittedHostDevices")
_LISTS: Final = ("pciHostDevices", "mediatedDevices", "usb", "usbHostDevices")
"""In KubeVirt ``usb``, in HyperConverged ``usbHostDevices``."""


def problem(said: str, cluster: Cluster) -> Problem | None:
    """Return which device is not permitted, by what virt-controller says; None:
    it says something else.
    """
    found = _SAID.search(said)
    if found is None:
        return None
    device, have = found[2], _offering(found[2], cluster)
    holder = configuration.known_or_none(
        configuration.hyperconverged, cluster
    ) or configuration.known_or_none(configuration.kubevirt, cluster)
    what = {"GPU": "GPU", "HostDevice": "host device"}[found[1]]
    begin = f"KubeVirt creates no pod for it, because its {what} {device} is not permitted"
    offered = (
        f", though {names(have, 60)} {'has' if len(have) == 1 else 'have'} it allocatable"
        if have
        else ""
    )
    if holder is None:
        remedy = (
            "add it to spec.configuration.permittedHostDevices of the KubeVirt object, or remove "
            "it from the VM"
        )
        return Problem(f"{begin}{offered}", remedy, ProblemCause.NOT_REPORTED)
    listed = _permitted(holder)
    others = [each["resourceName"].text or "" for name in _LISTS for each in listed[name].items()]
    only = f"lists only {names(filter(None, others), 100)}" if any(others) else "lists no device"
    where = f"{listed.path} of {holder.kind} {holder.full_name} {only}"
    return Problem(
        f"{begin}{offered}: {where}",
        _remedy(device, have, holder, cluster),
        ProblemCause.NOT_REPORTED,
    )


def _offering(device: str, cluster: Cluster) -> list[str]:
    """Return the nodes that have a device for pods."""
    nodes = (
        node
        for node in cluster.known(NODE)
        if node.at("status", "allocatable", device).text not in (None, "0")
    )
    return sorted(node.name for node in nodes)


def _kind(holder: Object) -> Kind:
    return HCO if holder.kind == HCO.kind else KUBEVIRT


def _permitted(holder: Object) -> Field:
    if _kind(holder) is KUBEVIRT:
        return holder.at("spec", "configuration", "permittedHostDevices")
    return holder.at(
        "spec",
        *(() if holder.version == "v1beta1" else ("virtualization",)),
        "permittedHostDevices",
    )


def _remedy(device: str, have: list[str], holder: Object, cluster: Cluster) -> str:
    """Return what permits the device: its own controller where there is one,
    else a change of the list.
    """
    kind, listed = _kind(holder), _permitted(holder)
    selector = "pciVendorSelector" if kind is KUBEVIRT else "pciDeviceSelector"
    value = _selected(device, cluster)
    entry: dict[str, object] = {selector: value, "resourceName": device}
    elsewhere = kind is KUBEVIRT and may_be_managed(holder, cluster)
    entry |= {"externalResourceProvider": True} if have else {}
    patch = _added(entry, listed, holder, kind) if value and not elsewhere else ""
    for node in have:
        for pod in unreported_devices.plugins(node, device, cluster):
            if unreported_devices.HARVESTER in pod.name:
                words = (
                    f"restart {pod.name} on {node}, which writes the entry "
                    f"again{f'; or add it ({patch})' if patch else ''}"
                )
                return typed(words, kubectl("delete", POD, pod.name, pod.namespace))
    if elsewhere:
        words = (
            "add it to permittedHostDevices of HyperConverged if one writes this KubeVirt, else to "
            f"{listed.path}"
        )
        return typed(
            f"{words}; or remove it from the VM", shell("kubectl", "get", HCO.plural, "-A")
        )
    if patch:
        return typed(f"add it to {listed.path}; or remove it from the VM", patch)
    outside = ", and externalResourceProvider: true since a device plugin offers it" if have else ""
    fields = f"its resourceName, its {selector} (or that of a mediated or USB device){outside}"
    return typed(
        f"add it to {listed.path} with {fields}; or remove it from the VM",
        about("edit", holder, kind),
    )


def _selected(device: str, cluster: Cluster) -> str:
    """Return the vendor and device id of a PCI device,
    as far as an object of the cluster says them.
    """
    known = (
        each
        for each in cluster.known(PCI_DEVICE)
        if each.at("status", "resourceName").text == device
    )
    ids = (
        (each.at("status", "vendorId").text, each.at("status", "deviceId").text) for each in known
    )
    return next((f"{vendor}:{own}" for vendor, own in ids if vendor and own), "")


def _added(entry: dict[str, object], listed: Field, holder: Object, kind: Kind) -> str:
    """Return the command that adds an entry to the PCI devices, besides those that are there."""
    pci = listed["pciHostDevices"]
    if any(True for _ in pci.items()):
        steps = [Patch("add", pci.path / "-", entry)]
        return json_patch(kind, holder.name, holder.namespace, steps)
    return merge_patch(
        kind, holder.name, holder.namespace, nested((*listed.path, "pciHostDevices"), [entry])
    )
