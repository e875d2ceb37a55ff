"""The storage class into which the disk of a VM is copied so that two nodes can use it at the same
time.

A class whose volumes at most one node reaches is left out, whatever its profile says.

Sources:
kubevirt/containerized-data-importer:pkg/controller/common/util.go#GetStorageClassByNameWithVirtFallback,
pkg/controller/storageprofile-controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, STORAGE_CLASS, STORAGE_PROFILE
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import node_local_volumes, storage
from virt_admit.model.kubevirt.instances.storage import DEFAULT_FOR_ALL, DEFAULT_FOR_VMS, SHARED
from virt_admit.model.lookups import find

READS: Final[Reads] = {STORAGE_CLASS: (), STORAGE_PROFILE: ()}

BLOCK: Final = "Block"
FILESYSTEM: Final = "Filesystem"


class SharedClass(NamedTuple):
    """A storage class with volumes that two nodes can use at the same time."""

    name: str
    volume_mode: str


def choose(current: str, volume_mode: str, cluster: Cluster, wanted: str = "") -> SharedClass | str:
    """Return the class for a copy of a disk, or why there is none.

    The class of the disk itself comes first, then the default for VMs, the default of the cluster,
    then by name. Block comes before Filesystem, except that a disk in block mode never becomes a
    file.

    Args:
        current: the class of the disk; empty: not known.
        volume_mode: ``Block`` or ``Filesystem``.
        cluster: the cluster.
        wanted: the class that an administrator named, which overrules all of this.
    """
    shared = list(_shared(cluster, volume_mode))
    if wanted:
        found = [each for each in shared if each.name == wanted]
        return found[0] if found else f"the profile of storage class {wanted} has no {SHARED}"
    if not shared:
        return f"no storage profile offers {SHARED}"
    first = (
        current,
        storage.marked(DEFAULT_FOR_VMS, cluster),
        storage.marked(DEFAULT_FOR_ALL, cluster),
    )
    return min(
        shared,
        key=lambda each: (first.index(each.name) if each.name in first else len(first), each.name),
    )


def _shared(cluster: Cluster, volume_mode: str) -> Iterator[SharedClass]:
    """Yield the classes with ReadWriteMany, each with its best volume mode."""
    for profile in cluster.known(STORAGE_PROFILE):
        name = profile.at("status", "storageClass").text or profile.name
        definition = find(cluster, STORAGE_CLASS, "", name)
        if definition is not None and not _reaches_two_nodes(definition, cluster):
            continue
        modes = [
            each["volumeMode"].text or FILESYSTEM
            for each in profile.at("status", "claimPropertySets").items()
            if any(mode.text == SHARED for mode in each["accessModes"].items())
        ]
        if BLOCK in modes:
            yield SharedClass(name, BLOCK)
        elif FILESYSTEM in modes and volume_mode != BLOCK:
            yield SharedClass(name, FILESYSTEM)


def _reaches_two_nodes(definition: Object, cluster: Cluster) -> bool:
    """Return whether volumes of a class can be used on a second node, as far as the class says."""
    if node_local_volumes.is_local(definition["provisioner"].text or ""):
        return False
    terms = [_demands(term) for term in definition["allowedTopologies"].items()]
    nodes = [node for node in cluster.known(NODE) if SCHEDULABLE in node.labels]
    reached = [node for node in nodes if any(_fits(node, term) for term in terms)]
    return not terms or len(reached) > 1


def _demands(term: Field) -> list[tuple[str, frozenset[str]]]:
    return [
        (each["key"].text or "", frozenset(value.text or "" for value in each["values"].items()))
        for each in term["matchLabelExpressions"].items()
    ]


def _fits(node: Object, demands: list[tuple[str, frozenset[str]]]) -> bool:
    return all(node.labels.get(key) in values for key, values in demands)
