"""A container that the runtime cannot create, as a device file does not exist on its node.

A device plugin tells the kubelet which files to give a container with a resource. That of KubeVirt
1.9.0 adds those of ``/dev/vfio/devices`` whether or not the kernel makes them. That of Harvester
names the IOMMU group that a PCIDevice had when the plugin began, which another kernel may
change as a node boots. A pod keeps the files that it was given. Sources:
harvester/pcidevices:pkg/deviceplugins/device_manager.go#Allocate,
:pkg/controller/pcideviceclaim/pcideviceclaim_controller.go#checkGroupMap (pull request 97), issue
harvester/harvester#6892;
kubevirt/kubevirt:pkg/virt-handler/device-manager/common.go#formatVFIOCdevDeviceSpecs (from 1.9.0
on), :pkg/virt-handler/device-manager/pci_device.go#Allocate, issue kubevirt/kubevirt#18895 and pull
request 18905; containerd/containerd:pkg/oci/spec_opts_unix.go#WithDevices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.driver_daemons import HANDLER
from virt_admit.model.commands import about, kubectl, logs_of, pods_on, typed, virtctl
from virt_admit.model.kubernetes import kinds, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import fields
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem

_PERMITTED: Final = "spec.configuration.permittedHostDevices"
READS: Final[Reads] = {
    POD: ("spec.containers.resources.limits", "spec.nodeName"),
    KUBEVIRT: (_PERMITTED, "status.observedKubeVirtVersion"),
    NODE: ("status.nodeInfo.kernelVersion",),
}
_API: Final = "devices.harvesterhci.io/v1beta1"
PCI_DEVICE: Final = kinds.guess(_API, "PCIDevice")._replace(namespaced=False)
PCI_DEVICE_CLAIM: Final = kinds.guess(_API, "PCIDeviceClaim")._replace(namespaced=False)
"""Of Harvester. In a live cluster discovery finds them."""
_PLUGIN: Final = "pcidevices"
"""In the names of the pods of Harvester's device plugin."""
_GROUP: Final = re.compile(r"/dev/vfio/(\d{1,6})")
_MISSING: Final = re.compile(
    r'(?:\bl?stat|\bopen|\bdevice) "?(/dev/[\w./:-]{1,200}?)"?: no such file or directory'
)
_BY_RUNTIME: Final = re.compile(
    r"^(?:Create|Run)ContainerError\b|\bfailed to generate (?:container \S+ )?spec\b"
)
"""How errors begin that the runtime meets when it creates a container. Errors of volumes name
files of devices, too, which no device plugin gives out.
"""
_DISK: Final = re.compile(
    r"/dev/(?:disk/|drbd|longhorn/|mapper/|(?:dm-|loop|nbd|nvme|rbd|[sv]d)\w)"
)
"""Files of block volumes, which the kubelet gives a container as devices as well
(kubernetes/kubernetes:pkg/kubelet/kubelet_pods.go#makeBlockVolumes).
"""
_CDEV: Final = "/dev/vfio/devices/"
_UNCHECKED: Final = Version(1, 9, 0)
"""The release that gives out files of that folder without a look whether they exist."""
_KUBEVIRT: Final = "devices.kubevirt.io/"
_USUAL: Final = frozenset(f"{_KUBEVIRT}{name}" for name in ("kvm", "tun", "vhost-net", "mshv"))
_LISTS: Final = ("pciHostDevices", "mediatedDevices", "usb")
_LONGEST: Final = 160


def of_pod(pod: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return the device file that the node of a pod lacks, by the words of its kubelet; None: they
    name none that a device plugin gives out.
    """
    found, node = _MISSING.search(said), pod.at("spec", "nodeName").text or ""
    if found is None or not node or not _BY_RUNTIME.search(said):
        return None
    path, resources = found[1], sorted(_resources(pod, found[1]))
    if not resources or _DISK.match(path):
        return None
    own = all(each.startswith(_KUBEVIRT) or _is_own(each, cluster) for each in resources)
    quoted, of = cut_middle(said, _LONGEST), f" for {names(resources)}"
    if own and path.startswith(_CDEV) and versions.kubevirt_version(cluster) == _UNCHECKED:
        return Problem(f"{quoted}. {_of_release(of, node, cluster)}", _UPDATE)
    former = _former_group(path, resources, pod, cluster) if not own else None
    if former is not None:
        return former._replace(reason=f"{quoted}. {former.reason}")
    plugin = "KubeVirt's device plugin" if own else "A device plugin"
    what = f"{quoted}. {plugin} gives it that file{of}, and {node} has no such file"
    there = node_pods.of_node(node, cluster)
    handler = next((each for each in there if node_pods.daemon(each) == HANDLER), None)
    words = f"see on {node} why {path} is missing (a driver that is not bound, another kernel)"
    if not own or handler is None:
        further = "then restart that device plugin, which looks for its devices again"
        return Problem(what, typed(f"{words}, {further}", kubectl("describe", NODE, node)))
    then = f"then restart pod {handler.name}, which looks for its devices again"
    return Problem(what, typed(f"{words}, {then}", logs_of(handler)))


def _former_group(
    path: str, resources: Sequence[str], pod: Object, cluster: Cluster
) -> Problem | None:
    """Return that Harvester's device plugin gives out the group that a device had before; None: a
    device of the node is in that group, or no device of Harvester is known to be meant.
    """
    group, node = _GROUP.fullmatch(path), pod.at("spec", "nodeName").text or ""
    there = [e for e in cluster.known(PCI_DEVICE) if e.at("status", "nodeName").text == node]
    if group is None or any(_group(each) == group[1] for each in there):
        return None
    meant = [
        each
        for each in sorted(there, key=lambda each: each.name)
        if each.at("status", "resourceName").text in resources and _group(each)
    ]
    if not meant:
        return None
    now = names(f"PCIDevice {each.name} is in IOMMU group {_group(each)} now" for each in meant)
    back = node_health.rebooted([node], cluster)
    reason = (
        f"Harvester's device plugin gives it that file for {names(resources)}, but {now} "
        f"(status.iommuGroup), and no device of {node} in {group[1]}, the group of before"
        f"{f' ({back})' if back else ''}"
    )
    plugins = (each for each in node_pods.of_node(node, cluster) if _PLUGIN in each.name)
    plugin = next(plugins, None)
    called = f"pod {plugin.name}" if plugin is not None else f"the pod of Harvester's {_PLUGIN}"
    command = about("delete", plugin, POD) if plugin is not None else pods_on(node)
    vm = pod.labels.get(launcher_pod.NAME)
    again = typed(
        "then restart the VM, as its pod keeps the file that it was given",
        virtctl("restart", vm, pod.namespace) if vm else "",
    )
    words = f"restart {called} on {node}, whose device plugin then takes the current group"
    return Problem(reason, typed(words, command, again))


def _group(device: Object) -> str:
    return device.at("status", "iommuGroup").text or ""


def _of_release(of: str, node: str, cluster: Cluster) -> str:
    kernel = fields(cluster, NODE, "", node).at("status", "nodeInfo", "kernelVersion").text
    return (
        f"KubeVirt {_UNCHECKED} gives it that file{of} also where the kernel makes none "
        f"(CONFIG_VFIO_DEVICE_CDEV), as that of {node}{f' ({kernel})' if kernel else ''}"
    )


_UPDATE: Final = (
    "update KubeVirt to a release with its pull request 18905, or boot the nodes with these "
    "devices with a kernel that has CONFIG_VFIO_DEVICE_CDEV"
)


def _resources(pod: Object, path: str) -> Iterator[str]:
    """Yield the resources of a pod whose device plugin may have given out a file."""
    limits = (each.at("resources", "limits") for each in pod.at("spec", "containers").items())
    every = {name for each in limits for name in each.map if "/" in name}
    named = {f"{_KUBEVIRT}{part}" for part in path.split("/")[2:]} & every
    yield from named or every - _USUAL


def _is_own(resource: str, cluster: Cluster) -> bool:
    """Return whether KubeVirt's own device plugin offers a resource."""
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    permitted = kubevirt.at(*_PERMITTED.split(".")) if kubevirt is not None else None
    if permitted is None:
        return False
    listed = (each for name in _LISTS for each in permitted[name].items())
    return any(
        each["resourceName"].text == resource and not each["externalResourceProvider"].boolean
        for each in listed
    )
