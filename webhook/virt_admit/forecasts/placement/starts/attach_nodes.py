"""What a node that gets no volume of a driver has unlike the nodes where that driver attaches them.

An error of a driver often names no cause, as ``could not determine device path``; a system that the
driver, or its kernel module, does not support is then told by the nodes that were not updated yet
(siderolabs/talos#10083). A node that has a volume of the driver shows that its system is not to
blame, and an error of one volume, which may be one of the storage, does not show that it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.evidence import node_differences
from virt_admit.model.evidence.node_differences import System, UnlikeNode
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
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
_OF_NODE: Final = re.compile(r"(?i)\bdevice path\b|\bkernel\b|\bmodule\b|\bmodprobe\b")
"""Errors that are about the node, not the volume."""
_SEVERAL: Final = 2
"""Volumes that fail on a node alone."""
_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)+")


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
        """What an administrator does if the driver says no more."""
        fields = {each[0]: each for each in self.unlike.fields}
        field, own, theirs = fields.get("osImage", self.unlike.fields[-1])
        first = "update no other node, and " if _is_newer(own, theirs) else ""
        return (
            f"{first}give {self.unlike.node} a system that the driver supports (volumes are "
            f"attached with {field} {names(theirs, _WIDTH)}, not with {own})"
        )

    def meanwhile(self, pod: Object, cluster: Cluster) -> str:
        """Return where a VM that does not run starts as long as its node is not repaired; empty: no
        such node is open, or the pod is not of such a VM.
        """
        vmi = vm_ledger.vmi_of(pod, cluster) if vm_ledger.vmi_name(pod) else None
        if vmi is None or not self.open or vmi.at("status", "phase").text not in _STARTING:
            return ""
        owner = vmi.controller
        if owner is None or owner["kind"].text != VM.kind:
            return ""
        return (
            f"until then its VM can start on {names(self.open, _WIDTH)}, if it has room there: "
            "write that as the nodeSelector of the VM, and start it again"
        )


def of(on: str, driver: str, cluster: Cluster) -> AttachNode | None:
    """Return what a node to which a driver does not attach a volume has unlike those to which it
    attaches them; None: nothing, it has one itself, there are none, the volume may be the cause, or
    not all is known.
    """
    node = find(cluster, NODE, "", on)
    if node is None or unlisted(cluster, VOLUME_ATTACHMENT) or unlisted(cluster, NODE):
        return None
    known = entry(cluster, _by_driver, driver)
    if known is None or on in known.places or on not in known.suspect:
        return None
    unlike = node_differences.unlike(node, known.systems, cluster)
    if unlike is None or not known.failing <= frozenset((on, *unlike.alike)):
        return None
    return AttachNode(driver, known.places, known.open, unlike)


class _Driver(NamedTuple):
    """Where volumes of a driver are attached, and where they cannot be."""

    places: Sequence[str]
    open: Sequence[str]
    """Those of the places that could take a VM now."""
    systems: Collection[System]
    """Those of the places."""
    failing: frozenset[str]
    suspect: frozenset[str]
    """Those where the node, not a volume, is likely the cause."""


@cached
def _by_driver(cluster: Cluster) -> Mapping[str, _Driver]:
    """Return the drivers whose volumes are attached only to nodes that are known, by their name."""
    of_driver = grouped(
        cluster.known(VOLUME_ATTACHMENT), lambda each: each.at("spec", "attacher").text or ""
    )
    found = {}
    for name, attachments in of_driver.items():
        places = sorted(
            {_on(each) for each in attachments if each.at("status", "attached").boolean}
        )
        there = [node for each in places if (node := find(cluster, NODE, "", each)) is not None]
        failing = grouped(filter(_error, attachments), _on)
        if len(there) == len(places):
            found[name] = _Driver(
                places,
                [node.name for node in there if _is_open(node)],
                frozenset(map(node_differences.system, there)),
                frozenset(failing),
                frozenset(on for on, failed in failing.items() if _is_of_node(failed)),
            )
    return found


def _is_of_node(failed: Sequence[Object]) -> bool:
    return len(failed) >= _SEVERAL or any(_OF_NODE.search(_error(each)) for each in failed)


def _is_open(node: Object) -> bool:
    return (
        node.is_true("Ready")
        and node.labels.get(SCHEDULABLE) == "true"
        and not node.at("spec", "unschedulable").boolean
    )


def _is_newer(own: str, theirs: Iterable[str]) -> bool:
    """Return whether a version is certainly above each of others."""
    mine, others = _release(own), [_release(each) for each in theirs]
    return bool(mine) and all(each and mine > each for each in others)


def _release(text: str) -> tuple[int, ...]:
    """Return the version that a text names first; empty: it names none."""
    found = _NUMBERS.search(text[:_WIDTH])
    return tuple(map(int, found[0].split("."))) if found is not None else ()


def _on(attachment: Object) -> str:
    return attachment.at("spec", "nodeName").text or ""


def _error(attachment: Object) -> str:
    return attachment.at("status", "attachError", "message").text or ""
