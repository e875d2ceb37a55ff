"""Errors of starts whose cause is known, each with the object that explains it.

- An image volume that the container runtime mounts empty. KubeVirt with feature gate ImageVolume,
  on by default since 1.9, takes the program of a container disk from one
  (kubevirt/kubevirt:pkg/container-disk/container-disk.go#CreateImageVolumeInitContainer,
  pkg/virt-config/featuregate; issue #17460). A runtime that does not know image volumes mounts an
  empty directory without an error (k3s-io/k3s#14323).
- SELinux without a policy. KubeVirt takes a node with ``/sys/fs/selinux/enforce`` for one whose
  processes have labels (kubevirt/kubevirt:cmd/virt-chroot/selinux.go,
  pkg/virt-handler/selinux/context_executor.go; issue #13607; siderolabs/talos#10083).
- A PCI device whose IOMMU group the host uses in part (``iommu_groups``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.failures import iommu_groups
from virt_admit.model.commands import kubectl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import known_or_none
from virt_admit.model.kubevirt.settings.versions import Gate
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

READS: Final[Reads] = {
    KUBEVIRT: (),
    HCO: (),
    NODE: (f"metadata.labels.{SCHEDULABLE}", "status.nodeInfo"),
    POD: (
        *("spec.volumes.name", "spec.volumes.image.reference"),
        "spec.initContainers.volumeMounts",
        "spec.containers.volumeMounts",
    ),
}

_MISSING: Final = re.compile(
    r"(?:exec|stat):? \\?\"?(/[\w./-]{1,200})\\?\"?(?=[: ]).{0,300}no such file or directory"
)
_BINARY: Final = "/container-disk-binary/"
"""Where an image volume alone has the program of a container disk."""
_SELINUX: Final = re.compile(
    r"selinux label\b.*(?:operation not supported|no data available)", re.IGNORECASE | re.DOTALL
)


class KnownError(NamedTuple):
    """The cause of an error."""

    why: str
    """Whole sentences, without the end."""
    remedy: str
    command: str = ""
    of_node: bool = False
    """Whether it is certainly a fault of the node, and not of the VM."""
    of_images: bool = False
    """Whether the runtime of the node mounts image volumes empty."""


def of(said: str, pod: Object | None, node: str, cluster: Cluster) -> KnownError | None:
    """Return the cause of an error with which a guest was not started; None: it is not known.

    ``pod``: the launcher, if it is left. ``node``: empty if it is not known.
    """
    missing = _MISSING.search(said)
    if missing is not None:
        return _of_image_volume(missing[1], pod, node, cluster)
    if (group := iommu_groups.of_error(said, node, cluster)) is not None:
        return KnownError(group.reason, group.remedy, group.command)
    return _of_selinux(cluster) if _SELINUX.search(said) else None


def _of_image_volume(
    path: str, pod: Object | None, node: str, cluster: Cluster
) -> KnownError | None:
    """Return that a path is missing which an image volume has; None: no image volume has it."""
    volume = _image_volume(path, pod) if pod is not None else None
    gate = versions.gate_is_known_on(cluster, Gate.IMAGE_VOLUME)
    if volume is None and (pod is not None or not gate or not path.startswith(_BINARY)):
        return None
    reference = volume.at("image", "reference").text if volume is not None else None
    of_image = f" (volume {volume['name'].text} of {reference})" if volume and reference else ""
    used = runtime(node, cluster)
    mounted = f"{used} on {node} mounts" if used and node else "the runtime mounts"
    why = [f"{path} comes from an image volume{of_image}, which {mounted} empty"]
    kubevirt = known_or_none(configuration.kubevirt, cluster)
    release = versions.kubevirt_version(cluster)
    if kubevirt is None:
        return KnownError(why[0], f"wait until {_updated(node, cluster)}", of_images=True)
    if not gate:
        why.append(
            f"Feature gate {Gate.IMAGE_VOLUME.gate} is off by now, so the next start has none"
        )
        return KnownError(". ".join(why), "wait for the next start")
    since = Gate.IMAGE_VOLUME.on_since
    asked = versions.gate_is_set(cluster, Gate.IMAGE_VOLUME)
    how = "as its object says" if asked else f"which is on by default since {since}"
    who = f"KubeVirt {release}" if release is not None else "KubeVirt"
    why.append(
        f"{who} uses it by feature gate {Gate.IMAGE_VOLUME.gate}, {how}, for each container disk"
    )
    hco = known_or_none(configuration.hyperconverged, cluster)
    if hco is not None:
        off = "annotation kubevirt.kubevirt.io/jsonpatch of HyperConverged"
        command = kubectl("edit", HCO, hco.name, hco.namespace)
    else:
        off = f"disabledFeatureGates of KubeVirt {kubevirt.full_name}"
        command = kubectl("edit", KUBEVIRT, kubevirt.name, kubevirt.namespace)
    asked_too = " and take it out of featureGates" if asked else ""
    remedy = (
        f"write {Gate.IMAGE_VOLUME.gate} into {off}{asked_too} until {_updated(node, cluster)}; "
        "restart or migrate no VM with a container disk before"
    )
    return KnownError(". ".join(why), remedy, command, of_images=True)


def needs_images(vmi: Object, cluster: Cluster) -> bool:
    """Whether the next pod of a VM has image volumes."""
    spec = vms.vmi_spec(vmi)
    disks = any(volume["containerDisk"].present for volume in spec["volumes"].items())
    boots = spec.at("domain", "firmware", "kernelBoot", "container").present
    return (disks or boots) and versions.gate_is_known_on(cluster, Gate.IMAGE_VOLUME)


def _updated(node: str, cluster: Cluster) -> str:
    """Return which runtimes have to be updated: those of all nodes that have the same one."""
    own = runtime(node, cluster)
    alike = sorted(
        each.name
        for each in cluster.known(NODE)
        if own and SCHEDULABLE in each.labels and runtime(each.name, cluster) == own
    )
    where = names(alike, 60) if alike else node or "the nodes"
    release = " (k3s 1.36.2 or later)" if "k3s" in own else ""
    return f"{where} {'has' if len(alike) == 1 else 'have'} a runtime with image volumes{release}"


def runtime(node: str, cluster: Cluster) -> str:
    """Return the container runtime of a node, as ``containerd://2.2.3``; empty: not known."""
    found = find(cluster, NODE, "", node)
    info = found.at("status", "nodeInfo", "containerRuntimeVersion") if found is not None else None
    return (info.text or "") if info is not None else ""


def _image_volume(path: str, pod: Object) -> Field | None:
    """Return the image volume of a pod below whose mount a path is; None: there is none."""
    volumes = {
        volume["name"].text: volume
        for volume in pod.at("spec", "volumes").items()
        if volume["image"].is_map
    }
    for kind in ("initContainers", "containers"):
        for container in pod.at("spec", kind).items():
            for mount in container["volumeMounts"].items():
                at, volume = mount["mountPath"].text, volumes.get(mount["name"].text)
                if at and volume is not None and path.startswith(f"{at.rstrip('/')}/"):
                    return volume
    return None


def _of_selinux(cluster: Cluster) -> KnownError:
    release = versions.kubevirt_version(cluster)
    who = f"KubeVirt {release}" if release is not None else "KubeVirt"
    return KnownError(
        f"{who} takes the node for one with SELinux, as it has /sys/fs/selinux/enforce, but no "
        "process there has a label: its kernel has SELinux without a policy",
        "hide /sys/fs/selinux there (a DaemonSet that mounts an empty tmpfs over it) or return the "
        "node to an OS without SELinux, and update no other node to that OS before",
        of_node=True,
    )
