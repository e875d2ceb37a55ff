"""PCI devices of Harvester that the host keeps in the IOMMU group of a device of a VM.

QEMU gets a device only if the kernel has bound each other device of its group to vfio-pci or to no
driver, bridges excepted. Harvester adds the others of a group to a VM when that is created, and not
when a device is added later. Sources: torvalds/linux:drivers/vfio/vfio.c#vfio_dev_viable (5.15);
qemu/qemu:hw/vfio/container.c (the error);
harvester/pcidevices:pkg/webhook/vm.go#generateHostDevicesPatch #Update,
:pkg/apis/devices.harvesterhci.io/v1beta1/pcidevice.go; harvester/harvester#10499.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components.drivers.missing_device_files import (
    PCI_DEVICE,
    PCI_DEVICE_CLAIM,
)
from virt_admit.model.commands import about
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find, grouped, is_absent
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

_SAID: Final = re.compile(r"\bgroup (\d{1,6}) is not viable")
_VFIO: Final = "vfio-pci"
_USABLE: Final = ("", _VFIO, "pci-stub", "pcieport")
"""Drivers of devices that do not keep their group from a guest; empty: no driver."""
_PATIENCE: Final = timedelta(minutes=5)
"""So long the agent may need for a new claim."""
_BRIDGE: Final = "06"
"""The class of bridges, which the kernel leaves to the host."""


def of_error(said: str, node: str, cluster: Cluster) -> Problem | None:
    """Return which devices of a group the host keeps, by the error of QEMU; None: none is known,
    or the error is another one. The remedy lacks its command.
    """
    group = _SAID.search(said)
    return _kept(node, group[1], cluster) if group is not None and node else None


def of_start(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which devices the host keeps in the group of each device that a VM may get; None: it
    may get one whose group is free, as far as is known.
    """
    devices = vms.vmi_spec(vm).at("domain", "devices")
    for kind in ("hostDevices", "gpus"):
        for wanted in devices[kind].items():
            offered = [
                each
                for each in entry(cluster, _by_resource, wanted["deviceName"].text or "") or ()
                if _is_passed_through(each, cluster)
            ]
            groups = [_group(each) for each in offered]
            kept = (each for own in groups for each in _of_host(*own, cluster))
            if any(_is_being_taken(each, cluster) for each in kept):
                continue
            held = [_kept(*own, cluster) for own in groups]
            if held and held[0] is not None and all(held):
                reason = f"its guest would not start: {held[0].reason}"
                return held[0]._replace(reason=reason, cause=ProblemCause.NOT_REPORTED)
    return None


def _kept(node: str, group: str, cluster: Cluster) -> Problem | None:
    """Return which devices of a group have a driver of the host; None: none, or that is not
    known.
    """
    kept, members = _of_host(node, group, cluster), entry(cluster, _by_group, (node, group)) or ()
    if not kept:
        return None
    shown = names((f"{each.name} (driver {_driver(each)}{_what(each)})" for each in kept), 200)
    whose = "that" if len(kept) == 1 else "those"
    unclaimed = all(is_absent(cluster, PCI_DEVICE_CLAIM, "", each.name) for each in kept)
    without = f", and no PCIDeviceClaim takes {whose} from it" if unclaimed else ""
    passed = names(each.name for each in members if _driver(each) == _VFIO)
    of = f", which is also that of {passed}" if passed else ""
    reason = f"the host uses PCIDevice {shown} of IOMMU group {group} on {node}{of}"
    lacking = [each for each in kept if _claim(each, cluster) is None]
    if not lacking:
        own = "its PCIDeviceClaim has" if len(kept) == 1 else "their PCIDeviceClaims have"
        taken = "it" if len(kept) == 1 else "them"
        way = f"see the log of Harvester's pcidevices agent on {node}"
        see = about("describe", kept[0], PCI_DEVICE_CLAIM)
        return Problem(f"{reason}, and {own} not taken {taken} yet", way, command=see)
    way = (
        f"enable the passthrough of {names(each.name for each in lacking)} too on Harvester's page "
        "PCI Devices, if the host works without it, and add it to the VM; else use a device of "
        "another group"
    )
    return Problem(f"{reason}{without}", way, command=about("describe", kept[0], PCI_DEVICE))


def _of_host(node: str, group: str, cluster: Cluster) -> Sequence[Object]:
    members = entry(cluster, _by_group, (node, group)) or ()
    return [each for each in members if group and _driver(each) not in _USABLE]


def _is_being_taken(device: Object, cluster: Cluster) -> bool:
    """Return whether the host has just been asked for a device."""
    claim = _claim(device, cluster)
    age = clock.age(claim, cluster) if claim is not None else None
    return age is not None and age < _PATIENCE


def _claim(device: Object, cluster: Cluster) -> Object | None:
    return find(cluster, PCI_DEVICE_CLAIM, "", device.name)


def _driver(device: Object) -> str:
    return (device.at("status", "kernelDriverInUse").text or "").strip()


def _what(device: Object) -> str:
    """Return the kind of a device, as ``, Audio device``; empty: not known."""
    kind = (device.at("status", "description").text or "").partition(":")[0]
    return f", {kind}" if kind else ""


def _is_passed_through(device: Object, cluster: Cluster) -> bool:
    claim = _claim(device, cluster)
    return claim is not None and claim.at("status", "passthroughEnabled").boolean is True


def _group(device: Object) -> tuple[str, str]:
    status = device["status"]
    return status["nodeName"].text or "", status["iommuGroup"].text or ""


def _by_group(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    own = (
        each
        for each in sorted(cluster.known(PCI_DEVICE), key=lambda each: each.name)
        if not (each.at("status", "classId").text or "").startswith(_BRIDGE)
    )
    return grouped(own, _group)


def _by_resource(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    known = sorted(cluster.known(PCI_DEVICE), key=lambda each: each.name)
    return grouped(known, lambda each: each.at("status", "resourceName").text or "-")
