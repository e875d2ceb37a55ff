"""Disks of a VM that grow on the disk of its node, and the limit of its launcher pod for that.

KubeVirt keeps empty disks, and what the guest writes to container disks and ephemeral disks, in
volumes ``emptyDir`` of the launcher pod. It requests 50M of ``ephemeral-storage`` and sets no limit
of its own. A LimitRange sets one for each container without. Sources:
kubevirt/kubevirt:pkg/emptydisk/emptydisk.go, :pkg/ephemeral-disk/ephemeral-disk.go,
:pkg/virt-controller/services/renderresources.go#WithEphemeralStorageRequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE, RESOURCE_QUOTA, VMI
from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import expand, vms
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.kubevirt.launcher import launcher_resources, limit_ranges
from virt_admit.model.scheduler.resources import amount, show

STORAGE: Final = "ephemeral-storage"
READS: Final[Reads] = union(
    limit_ranges.READS,
    launcher_resources.READS,
    expand.READS,
    {VMI: ("spec",), NAMESPACE: ("metadata.labels",), RESOURCE_QUOTA: ("spec",)},
)
_KINDS: Final = ("containerDisk", "ephemeral")


class ScratchDisk(NamedTuple):
    """A disk that grows on the disk of the node."""

    volume: Field
    words: str
    size: int
    """Bytes that it may grow to; 0: not known."""


class StorageLimit(NamedTuple):
    """How much a launcher pod may write to the disk of its node, besides its volumes on claims."""

    size: int
    by: str
    """The LimitRange that sets it; empty: the VM itself."""


def growing(spec: Field) -> Iterator[ScratchDisk]:
    """Yield the disks of a VMI spec that grow on the disk of its node, empty disks first: only
    their size is known.
    """
    volumes = list(spec["volumes"].items())
    for volume in volumes:
        capacity = volume.at("emptyDisk", "capacity")
        if volume["emptyDisk"].is_map:
            size = amount(STORAGE, capacity.value)
            yield ScratchDisk(
                volume, f"emptyDisk {volume['name'].text or ''} ({show(STORAGE, size)})", size
            )
    for volume in volumes:
        for kind in _KINDS:
            if volume[kind].is_map:
                yield ScratchDisk(
                    volume, f"what the guest writes to {kind} {volume['name'].text or ''}", 0
                )


def total(disks: Iterable[ScratchDisk]) -> int:
    """Return the bytes that the disks of known size may grow to."""
    return sum(disk.size for disk in disks)


def limit(vmi: ExpandedVmi, cluster: Cluster) -> StorageLimit | None:
    """Return the limit of the launcher pod of a VM, as far as it is known; None: it has none.

    The kubelet adds up the limits of all containers that have one.
    """
    own = launcher_resources.pod(vmi, cluster)
    ranges = limit_ranges.of_namespace(cluster, vms.namespace_of(vmi.obj))
    size = limit_ranges.defaulted(own, ranges).limits.get(STORAGE)
    if size is None:
        return None
    if own.limits.get(STORAGE) == size:
        return StorageLimit(size, "")
    sets = (
        found.name for found in ranges if limit_ranges.defaulted(own, [found]).limits.get(STORAGE)
    )
    return StorageLimit(size, next(sets, ""))
