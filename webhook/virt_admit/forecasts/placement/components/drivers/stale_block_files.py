"""A container that the runtime cannot create, as its node has a plain file for a block volume.

After a reboot the kubelet may publish a block volume without staging it first, and the driver then
binds the empty file that the former mount left. The container has not run, so nothing has written.
Sources: longhorn/longhorn#8009 (repaired in 1.6.1), kubernetes/kubernetes#120455,
harvester/harvester#5109, harvester/docs:docs/troubleshooting/vm.md,
containerd/containerd:pkg/oci/utils_unix.go#ErrNotADevice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn.longhorn_nodes import DRIVER
from virt_admit.model.commands import argument, kubectl, shell, typed, virtctl
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import POD, PV, PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads
from virt_admit.model.kubevirt.launcher.launcher_pod import MIGRATION_JOB
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import claim_names, claim_users

READS: Final[Reads] = {
    PVC: ("spec.volumeMode", "spec.volumeName"),
    PV: ("spec.csi.driver",),
    VM: NAME,
    POD: ("spec.nodeName", "metadata.ownerReferences", "metadata.labels"),
    VMI: ("status.nodeName", "status.phase"),
}
_NO_DEVICE: Final = "not a device node"
_ID: Final = re.compile(r' "[0-9a-f]{32,64}"')
_DEVICES: Final = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices"


class StaleBlockFile(NamedTuple):
    """A plain file where a block device should be."""

    what: str
    brief: str
    remedy: str
    of_node: bool
    """Whether the node was rebooted lately, so that other nodes do not have that file."""


def of_pod(pod: Object, said: str, cluster: Cluster) -> StaleBlockFile | None:
    """Return that the node of a pod has plain files for its block volumes, by the words of its
    kubelet; None: they say something else, or another pod there uses the same volume.
    """
    on = pod.at("spec", "nodeName").text or ""
    claims = list(_block_claims(pod, cluster)) if _NO_DEVICE in said and on else []
    if not claims or any(_is_shared(pod, each, on, cluster) for each in claims):
        return None
    volumes = [each.at("spec", "volumeName").text or "" for each in claims]
    reboot = node_health.rebooted((on,), cluster)
    drivers = (find(cluster, PV, "", each) for each in volumes)
    of_longhorn = any(
        e is not None and e.at("spec", "csi", "driver").text == DRIVER for e in drivers
    )
    fixed = "Longhorn before 1.6.1 leaves it there" if of_longhorn else ""
    why = "; ".join(filter(None, (reboot, fixed)))
    left = f"left from before a reboot{f' ({why})' if why else ''}"
    what = f"{on} has a plain file for the block volume of claim {names(e.name for e in claims)}"
    told = f"{_ID.sub('', said)}. Most likely {what}, {left}"
    return StaleBlockFile(
        told, f"most likely {what}", _remedy(pod, volumes, on, cluster), bool(reboot)
    )


def _remedy(pod: Object, volumes: list[str], on: str, cluster: Cluster) -> str:
    paths = " ".join(f"{shell(f'{_DEVICES}/{each}/dev')}/*" for each in volumes)
    unmount = f"run on {on}: umount {paths}"
    if unlisted(cluster, POD):
        unmount = f"if no other pod on {on} uses that claim (not all pods were read), {unmount}"
    if _is_target(pod, on, cluster):
        return _of_target(pod, unmount, on)
    if pod.labels.get("kubevirt.io") == _HOTPLUG:
        return _of_hotplug(pod, unmount, on)
    vm = find(cluster, VM, pod.namespace, pod.owned_by(VMI.kind))
    if vm is None:
        return f"keep its owner from making a new pod on {on}, delete the pod, and {unmount}"
    stop, start = (virtctl(verb, vm.name, vm.namespace) for verb in ("stop", "start"))
    return typed(
        f"stop the VM, unmount that file on {on} and start it",
        stop,
        f"its guest has not run; then {unmount} ; and start the VM once pod {pod.name} is gone "
        f"({start})",
    )


_HOTPLUG: Final = "hotplug-disk"
"""The label of the pod that attaches hotplugged volumes to the node of a guest that runs."""


def _of_hotplug(pod: Object, unmount: str, on: str) -> str:
    """Return how a hotplugged volume is repaired: the guest may have it although its pod waits, as
    after an eviction of that pod."""
    return typed(
        f"unplug that volume, first in the guest, and unmount the file on {on} after",
        kubectl("describe", POD, pod.name, pod.namespace),
        f"only once no pod on {on} uses that claim, {unmount} ; then plug the volume in again",
    )


def _is_target(pod: Object, on: str, cluster: Cluster) -> bool:
    """Return whether a pod is the target of a migration: its guest runs on another node."""
    if MIGRATION_JOB in pod.labels:
        return True
    vmi = find(cluster, VMI, pod.namespace, pod.owned_by(VMI.kind))
    return (
        vmi is not None
        and vmi.at("status", "phase").text == "Running"
        and vmi.at("status", "nodeName").text not in (None, "", on)
    )


def _of_target(pod: Object, unmount: str, on: str) -> str:
    """Return how the node is repaired while the guest goes on: KubeVirt ends the target pod."""
    cancel = virtctl("migrate-cancel", pod.owned_by(VMI.kind) or "", pod.namespace)
    return typed(
        f"cordon {on}, let the migration fail or cancel it, and unmount that file there after",
        shell("kubectl", "cordon", argument(on)),
        f"to cancel it: {cancel} ; only once pod {pod.name} is gone, {unmount} ; the VM goes on "
        "meanwhile",
    )


def _block_claims(pod: Object, cluster: Cluster) -> Iterator[Object]:
    for name in claim_names(pod):
        claim = find(cluster, PVC, pod.namespace, name)
        if claim is not None and claim.at("spec", "volumeMode").text == "Block":
            yield from (claim,) if claim.at("spec", "volumeName").text else ()


def _is_shared(pod: Object, claim: Object, on: str, cluster: Cluster) -> bool:
    """Return whether another pod on a node uses a claim, which may run with the device."""
    users = claim_users(pod.namespace, claim.name, cluster)
    return any(each.name != pod.name and each.at("spec", "nodeName").text == on for each in users)
