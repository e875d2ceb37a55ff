"""Disks of Longhorn that are not ready, although their node is.

Longhorn keeps the disk in its Node, and compares its UUID with the one in ``longhorn-disk.cfg`` at
the path. Sources: longhorn/longhorn-manager:controller/node_controller.go#syncDiskStatus
#updateReadyDisks, :k8s/pkg/apis/longhorn/v1beta2/node.go; issue harvester/harvester#10453.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_NODE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.messages import cut_middle

READS: Final[Reads] = {LONGHORN_NODE: (*CONDITIONS, "spec.disks", "status.diskStatus")}
_CHANGED: Final = "DiskFilesystemChanged"
_LONGEST: Final = 120
_PATIENCE: Final = timedelta(minutes=5)


class LonghornDisk(NamedTuple):
    """A disk of a node, as Longhorn reports it."""

    node: Object
    name: str
    status: Field

    @property
    def uuid(self) -> str:
        return self.status["diskUUID"].text or ""

    @property
    def ready(self) -> Field:
        """The condition that says whether Longhorn can use the disk."""
        known = self.status["conditions"].items()
        return next((each for each in known if each["type"].text == "Ready"), Field(None))

    @property
    def is_wanted(self) -> bool:
        """Whether the node is ready, and the disk is not taken out of use."""
        of_node = self.node.condition("Ready")["status"].text
        spec = self.node.at("spec", "disks", self.name)
        leaves = spec["evictionRequested"].boolean is True
        return spec.is_map and of_node == "True" and not leaves

    def fault(self, cluster: Cluster) -> str:
        """Return that the disk is not ready, since when, and why; empty: it is, or its node is
        not, or it is taken out of use.
        """
        ready = self.ready
        if ready["status"].text != "False" or not self.is_wanted:
            return ""
        age = clock.lasting(ready["lastTransitionTime"].text, cluster)
        # Longhorn repeats the disk, its path and its node before it says why
        words = ready["message"].words.rpartition(" is not ready: ")[2]
        reason, said = ready["reason"].text, cut_middle(words, _LONGEST)
        why = f" with {reason}" if reason else ""
        return f"is not ready{age}{why}{f' ({said})' if said else ''}"

    def remedy(self) -> str:
        """Return what brings the disk back, with the command that shows it.

        The recorded UUID on another disk would make Longhorn use data that is not there.
        """
        path, on = self.status["diskPath"].text or "its path", self.node.name
        mounted = "" if self.status["diskType"].text == "block" else "is mounted and "
        way = f"see that the disk at {path} of {on} {mounted}works"
        if self.ready["reason"].text == _CHANGED:
            way = (
                f"mount that disk again at {path} of {on}; its longhorn-disk.cfg has diskUUID "
                f"{self.uuid}. Write that UUID there only if it is the same disk"
            )
        return typed(way, about("describe", self.node, LONGHORN_NODE))


def is_new(disk: LonghornDisk, cluster: Cluster) -> bool:
    """Return whether a disk may get ready in a moment, as after a reboot of its node."""
    age = clock.since(disk.ready["lastTransitionTime"].text, cluster)
    return age is not None and age < _PATIENCE


def of_node(node: Object) -> Iterator[LonghornDisk]:
    """Yield the disks that Longhorn knows of a node."""
    for name in sorted(node.at("status", "diskStatus").map):
        yield LonghornDisk(node, name, node.at("status", "diskStatus", name))


def by_uuid(cluster: Cluster) -> Mapping[str, LonghornDisk]:
    """Return all known disks by their UUID."""
    return {
        disk.uuid: disk
        for node in cluster.known(LONGHORN_NODE)
        for disk in of_node(node)
        if disk.uuid
    }
