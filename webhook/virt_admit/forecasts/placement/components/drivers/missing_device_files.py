"""A container that the runtime cannot create, as a device file does not exist on its node.

A device plugin tells the kubelet which files to give a container with a resource. That of KubeVirt
1.9.0 adds those of ``/dev/vfio/devices`` whether or not the kernel makes them. Sources:
kubevirt/kubevirt:pkg/virt-handler/device-manager/common.go#formatVFIOCdevDeviceSpecs (from 1.9.0
on), :pkg/virt-handler/device-manager/pci_device.go#Allocate, issue kubevirt/kubevirt#18895 and pull
request 18905; containerd/containerd:pkg/oci/spec_opts_unix.go#WithDevices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.driver_daemons import HANDLER
from virt_admit.model.commands import kubectl, logs_of, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
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
    plugin = "KubeVirt's device plugin" if own else "A device plugin"
    what = f"{quoted}. {plugin} gives it that file{of}, which {node} lacks"
    there = node_pods.of_node(node, cluster)
    handler = next((each for each in there if node_pods.daemon(each) == HANDLER), None)
    words = f"see on {node} why {path} is missing (a driver that is not bound, another kernel)"
    if not own or handler is None:
        further = "then restart that device plugin, which looks for its devices again"
        return Problem(what, typed(f"{words}, {further}", kubectl("describe", NODE, node)))
    then = f"then restart pod {handler.name}, which looks for its devices again"
    return Problem(what, typed(f"{words}, {then}", logs_of(handler)))


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
