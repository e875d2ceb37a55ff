"""Which VM holds a claim through a pod of it, and whether anything still owns that VM.

A VMI goes on without its VirtualMachine if that is deleted without it (``--cascade=orphan``), or if
a controller takes a VM that is gone for one that has let its volumes go. virt-controller writes the
generation of the VM on each VMI that it makes, and a new VM of the same name adopts the VMI.
Sources: kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#setGenerationAnnotation,
:pkg/controller/controller_ref_manager.go#ClaimVirtualMachineInstanceByName;
kubevirt/csi-driver#182, #184.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migratability, vmis, vms
from virt_admit.model.kubevirt.launcher import hotplugs, vm_ledger
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import claim_names, claim_users

READS: Final[Reads] = {
    VM: ("metadata.name",),
    VMI: (f"metadata.annotations.{vmis.GENERATION}", "metadata.ownerReferences", "spec", "status"),
    POD: (
        "metadata.ownerReferences",
        "metadata.labels",
        "spec.volumes",
        "spec.nodeName",
        "status.phase",
    ),
}
_HOTPLUG: Final = "hotplug-disk"
"""The label of the pod that holds the hotplugged volumes of a VM on its node."""


class ClaimHolder(NamedTuple):
    """A VM that holds a claim which another VM needs."""

    vmi: Object
    pod: Object
    volumes: tuple[str, ...]
    """Its volumes of the claims that both need."""
    claims: tuple[str, ...]
    is_left: bool
    """Whether its VirtualMachine does not exist any more."""

    @property
    def words(self) -> str:
        """Which claims are open, and which VM uses them."""
        on, several = self.pod.at("spec", "nodeName").text or "?", len(self.claims) > 1
        left = ", which nothing owns as its VirtualMachine is gone," if self.is_left else ""
        if self.is_ending:
            left = ", which is being deleted," if self.vmi.deleted else ""
        pod = f"pod {self.pod.name}{', which is in deletion' if self.pod.deleted else ''}"
        who = f"{'VMI' if self.is_left else 'VM'} {self.vmi.full_name} on {on}{left}"
        return f"{who} has claim{'s' * several} {names(self.claims)} open ({pod})"

    @property
    def is_ending(self) -> bool:
        """Whether the holder is about to let the claim go, unless something keeps its pod."""
        return self.pod.deleted or self.vmi.deleted

    @property
    def remedy(self) -> str:
        """What frees the claim: the guest of the holder may still be needed."""
        name, namespace = self.vmi.name, vms.namespace_of(self.vmi)
        if self.is_ending:
            see = kubectl("describe", POD, self.pod.name, namespace)
            return typed(f"wait until pod {self.pod.name} has ended; if that lasts, see why", see)
        plugged = [each for each in self.volumes if _is_plugged(self.vmi, each)]
        command = ("virtctl", "removevolume", argument(name))
        unplug = " && ".join(
            shell(*command, f"--volume-name={each}", "-n", namespace) for each in plugged
        )
        if self.is_left and plugged:
            return typed(
                f"check that the guest of {name} is not needed any more, and unplug "
                f"{_these(plugged)} from it",
                unplug,
                "or, as a decision, delete that VMI",
            )
        if self.is_left:
            way = f"check whether the guest of {name} is still needed, and delete its VMI if not"
            return typed(way, kubectl("describe", VMI, name, namespace))
        own = f"stop VM {self.vmi.full_name}, or give each VM a claim of its own"
        if plugged:
            own = f"unplug {_these(plugged)} from VM {self.vmi.full_name}, or from this VM"
        return typed(own, kubectl("describe", VMI, name, namespace))


def is_left(vmi: Object, cluster: Cluster) -> bool:
    """Return whether the VirtualMachine that made a VMI certainly does not exist any more."""
    return (
        vmi.controller is None
        and not vmi.deleted
        and not vmi.ended
        and bool(vmi.annotations.get(vmis.GENERATION))
        and is_absent(cluster, VM, vms.namespace_of(vmi), vmi.name)
    )


def vmi_of(pod: Object, cluster: Cluster) -> Object | None:
    """Return the VMI for which a pod holds its claims: that of a launcher, or of the launcher to
    which the pod attaches volumes; None: it is another pod, or its VMI is not known.
    """
    if pod.labels.get("kubevirt.io") == _HOTPLUG:
        owner = pod.controller
        launcher = find(cluster, POD, pod.namespace, owner["name"].text or "") if owner else None
        return vm_ledger.vmi_of(launcher, cluster) if launcher is not None else None
    return vm_ledger.vmi_of(pod, cluster) if vm_ledger.vmi_name(pod) else None


def is_of(pod: Object, vmi: Object, cluster: Cluster) -> bool:
    """Return whether a pod holds its claims for a VMI."""
    found = vmi_of(pod, cluster)
    return found is not None and found.full_name == vmi.full_name


def of_pods(pods: Iterable[Object], waiting: Object, cluster: Cluster) -> ClaimHolder | None:
    """Return the first of the VMs whose pods, on other nodes, hold a claim of a pod that waits;
    None: the VM of that pod holds it, both may write it, or that is not known.
    """
    own = vmi_of(waiting, cluster)
    if own is None:
        return None
    on, claims = waiting.at("spec", "nodeName").text, frozenset(claim_names(waiting))
    for pod in pods:
        elsewhere = pod.at("spec", "nodeName").text not in (None, on)
        runs = elsewhere and pod.at("status", "phase").text == "Running"
        other = vmi_of(pod, cluster) if runs else None
        if other is None or other.name == own.name or other.ended:
            continue
        shared = claims.intersection(claim_names(pod))
        volumes = sorted(_written(other, shared))
        if volumes:
            held, used = zip(*volumes, strict=True)
            return ClaimHolder(other, pod, held, used, is_left(other, cluster))
    return None


def awaiting(vmi: Object, cluster: Cluster) -> tuple[str, Object] | None:
    """Return a claim that a VMI holds and the pod of another VM, on another node, that waits for
    it; None: no such pod is known.
    """
    on, namespace = vmi.at("status", "nodeName").text, vms.namespace_of(vmi)
    for _, claim in sorted(hotplugs.claims(vmi)):
        for pod in claim_users(namespace, claim, cluster):
            waits = pod.at("status", "phase").text == "Pending" and not pod.deleted
            if not waits or pod.at("spec", "nodeName").text in (None, "", on):
                continue
            other = vmi_of(pod, cluster)
            if other is not None and other.name != vmi.name:
                return claim, pod
    return None


def _these(volumes: Sequence[str]) -> str:
    return f"volume {volumes[0]}" if len(volumes) == 1 else f"these {len(volumes)} volumes"


def _written(vmi: Object, claims: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the volumes of these claims that a VM writes alone, each with its claim: no disk of
    them is shareable.
    """
    disks = vmi.at("spec", "domain", "devices", "disks").items()
    shared = {each["name"].text for each in disks if each["shareable"].boolean is True}
    for volume in vmi.at("spec", "volumes").items():
        claim, name = migratability.claim_of(volume), volume["name"].text or ""
        if claim is not None and claim.text in claims and name and name not in shared:
            yield name, claim.text or ""


def _is_plugged(vmi: Object, volume: str) -> bool:
    return any(
        each["name"].text == volume
        and each["hotplugVolume"].is_map
        and each["phase"].text not in hotplugs.LEAVING
        for each in vmi.at("status", "volumeStatus").items()
    )
