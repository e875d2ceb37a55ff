"""Drivers that publish the free space of a volume group for a StorageClass of thin volumes.

A thin pool takes its space from the volume group when it is made, so the group may have nothing
left while the pool is empty. kube-scheduler believes the CSIStorageCapacity alone. LVM LocalPV of
OpenEBS publishes the most that a matching volume group of its LVMNode has free. Sources:
openebs/lvm-localpv:pkg/driver/controller.go#GetCapacity, issues 382, 458 (1.8.1), 463;
kubernetes/kubernetes:pkg/scheduler/framework/plugins/volumebinding/binder.go#hasEnoughCapacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CSI_DRIVER, STORAGE_CLASS
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import fields
from virt_admit.model.messages import names
from virt_admit.model.scheduler.resources import MEMORY, amount

READS: Final[Reads] = {STORAGE_CLASS: ("parameters",)}
_LVM_NODE: Final = kinds.guess("local.openebs.io/v1alpha1", "LVMNode")
"""What OpenEBS says of the volume groups of a node. In a live cluster discovery finds it."""
_THIN: Final = {"thinprovision": ("yes", "true"), "type": ("dm-thin",)}
"""Parameters of classes of thin volumes, in lower case: OpenEBS, Harvester."""


class ThinClass(NamedTuple):
    """A StorageClass of thin volumes whose driver publishes the free space of volume groups."""

    words: str
    groups: tuple[str, ...]
    """The volume groups, as ``volume group vg on n1``."""
    has_room: bool
    """Whether a smaller volume fits into what is published."""

    def remedy(self, driver: str) -> str:
        """Return what lets kube-scheduler use the pools, or enlarges what it counts."""
        off = merge_patch(CSI_DRIVER, driver, "", {"spec": {"storageCapacity": False}})
        words = (
            f"if the thin pool there has room (lvs on the node), set storageCapacity: false in "
            f"CSIDriver {driver} until an update of it counts the pool"
        )
        smaller = ", or ask for a smaller claim" if self.has_room else ""
        return typed(words, off, f"or add disks to {names(self.groups)}{smaller}")


def of(storage_class: str, most: Mapping[str, int | None], cluster: Cluster) -> ThinClass | None:
    """Return that what is published for a class says nothing of its thin pools; None: the class is
    not thin, or the driver has another source on one of the nodes.

    ``most``: the largest volume that each node has room for as the driver says, in bytes.
    """
    thin = _parameter(storage_class, cluster)
    groups = {name: _published(name, size, cluster) for name, size in most.items()} if thin else {}
    found = {name: group for name, group in groups.items() if group is not None}
    if not found or len(found) < len(most):
        return None
    each = names(
        f"{group.free} of {group.size} in {group.name} on {name}" for name, group in found.items()
    )
    words = (
        f", the free space of the volume group (LVMNode: {each}). But the class makes thin volumes "
        f"({thin}), and what their thin pool has left is not counted"
    )
    groups_of = tuple(f"{group.name} on {name}" for name, group in found.items())
    return ThinClass(words, groups_of, any(most.values()))


def _parameter(storage_class: str, cluster: Cluster) -> str:
    """Return the parameter by which a StorageClass makes thin volumes; empty: none is known."""
    given = fields(cluster, STORAGE_CLASS, "", storage_class)["parameters"]
    found = (
        f"{key}: {text}"
        for key in given.map
        if (text := given[key].text) and text.lower() in _THIN.get(key.lower(), ())
    )
    return next(found, "")


class _VolumeGroup(NamedTuple):
    name: str
    size: str
    free: str


def _published(node: str, most: int | None, cluster: Cluster) -> _VolumeGroup | None:
    """Return the volume group of a node that has exactly so much free; None: none is known."""
    for lvm_node in cluster.known(_LVM_NODE):
        if lvm_node.name != node:
            continue
        for group in lvm_node["volumeGroups"].items():
            size, free = (amount(MEMORY, group[key].value) for key in ("size", "free"))
            if group["free"].present and free == most and size > free:
                return _VolumeGroup(group["name"].text or "?", _shown(size), _shown(free))
    return None


def _shown(size: int) -> str:
    """Return how much there is, which is not rounded up as a demand is."""
    return next(
        (f"{size / unit:.3g}{suffix}" for unit, suffix in _UNITS if size >= unit), f"{size}"
    )


_UNITS: Final = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"))
