"""What a node that gets no volume of a driver has unlike the nodes where that driver attaches them.

An error of a driver often names no cause, as ``could not determine device path``; a system that the
driver, or its kernel module, does not support is then told by the nodes that were not updated yet
(siderolabs/talos#10083). A node that has a volume of the driver shows that its system is not to
blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.evidence import node_differences
from virt_admit.model.evidence.node_differences import UnlikeNode
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, VM, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import names

READS: Final[Reads] = {
    NODE: (*CONDITIONS, f"metadata.labels.{SCHEDULABLE}", "spec.unschedulable", "status.nodeInfo"),
    VOLUME_ATTACHMENT: (
        "spec.attacher",
        "spec.nodeName",
        "status.attached",
        "status.attachError.message",
    ),
}
_WIDTH: Final = 80
_STARTING: Final = ("Pending", "Scheduling", "Scheduled")


class AttachNode(NamedTuple):
    """A node to which a driver attaches no volume, against those to which it attaches them."""

    driver: str
    places: Sequence[str]
    open: Sequence[str]
    """Those of the places that could take a VM now."""
    unlike: UnlikeNode

    @property
    def words(self) -> str:
        """The comparison, in a sentence."""
        return (
            f"Volumes of {self.driver} are attached only on other nodes "
            f"({names(self.places, _WIDTH)}), unlike which {self.unlike.words}"
        )

    @property
    def repair(self) -> str:
        """What an administrator compares if the driver says no more."""
        fields = {each[0]: each for each in self.unlike.fields}
        field, own, theirs = fields.get("osImage", self.unlike.fields[-1])
        return (
            f"if that tells no cause, update no other node, and give {self.unlike.node} a system "
            f"that the driver supports (volumes are attached with {field} {theirs}, not with {own})"
        )

    def meanwhile(self, pod: Object, cluster: Cluster) -> str:
        """Return how a VM that does not run starts where its volumes are attached; empty: no such
        node is open, or the pod is not of such a VM.
        """
        vmi = vm_ledger.vmi_of(pod, cluster) if vm_ledger.vmi_name(pod) else None
        if vmi is None or not self.open or vmi.at("status", "phase").text not in _STARTING:
            return ""
        owner = vmi.controller
        if owner is None or owner["kind"].text != VM.kind:
            return ""
        closed = sorted((self.unlike.node, *self.unlike.alike))
        steps = (
            shell("kubectl", "cordon", *map(argument, closed)),
            virtctl("restart", owner["name"].text or "", pod.namespace),
        )
        begin = (
            f"until that is repaired, let the VM start on {names(self.open, _WIDTH)}, if it has "
            f"room there: cordon {names(closed, _WIDTH)} and restart the VM"
        )
        return typed(begin, " && ".join(steps))


def of(on: str, driver: str, cluster: Cluster) -> AttachNode | None:
    """Return what a node to which a driver does not attach a volume has unlike those to which it
    attaches them; None: nothing, it has one itself, there are none, or not all is known.
    """
    node = find(cluster, NODE, "", on)
    if node is None or unlisted(cluster, VOLUME_ATTACHMENT) or unlisted(cluster, NODE):
        return None
    known = entry(cluster, _by_driver, driver) or ()
    places = sorted({_on(each) for each in known if each.at("status", "attached").boolean})
    failing = {_on(each) for each in known if each.at("status", "attachError", "message").text}
    there = [found for name in places if (found := find(cluster, NODE, "", name)) is not None]
    # an error on one of them is of another kind, or of the storage
    if len(there) != len(places) or on in places or failing & set(places):
        return None
    unlike = node_differences.unlike(node, there, cluster)
    if unlike is None:
        return None
    is_open = [
        each.name
        for each in there
        if each.is_true("Ready")
        and each.labels.get(SCHEDULABLE) == "true"
        and not each.at("spec", "unschedulable").boolean
    ]
    return AttachNode(driver, places, is_open, unlike)


def _by_driver(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return grouped(
        cluster.known(VOLUME_ATTACHMENT), lambda each: each.at("spec", "attacher").text or ""
    )


def _on(attachment: Object) -> str:
    return attachment.at("spec", "nodeName").text or ""
