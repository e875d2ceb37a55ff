"""Disks of one VM whose volumes are on different nodes, and how they come together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.drain.starts.storage import chosen_places
from virt_admit.forecasts.drain.starts.storage.chosen_places import PlaceChoice
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, PVC, VM
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.volumes import VolumePlace

READS: Final[Reads] = union(chosen_places.READS, {DATA_VOLUME: ("metadata.ownerReferences",)})


def remedy(
    namespace: str, places: Mapping[str, VolumePlace], found: PlaceChoice, cluster: Cluster
) -> str:
    """Return what brings the disks together.

    The data of a disk on one node cannot be moved to another by the API alone.
    """
    first, *others = places
    again = others[-1] if others else first
    filled = find(cluster, DATA_VOLUME, namespace, again)
    vm, where = "", places[first].words.removeprefix("on ")
    if filled is not None and found.first and not found.command:
        vm = filled.owned_by(VM.kind)
    if vm:  # KubeVirt makes a disk again as its template says
        words = f"{found.first} for disk {again} in the dataVolumeTemplates of the VM"
        further = (
            f"then stop the VM, delete DataVolume {again} if its data can be imported or restored, "
            f"and start the VM: KubeVirt makes it again, to lie where {first} does ({where})"
        )
        return typed(words, kubectl("edit", VM, vm, namespace), further)
    kind = DATA_VOLUME.kind if filled is not None else "claim"
    how = (
        f"make disk {again} again, which is to lie where {first} does ({where}): delete its {kind} "
        "while the VM is stopped, if its data can be imported or restored"
    )
    if found.command:
        return typed(found.first, found.command, f"then {how}")
    shown = kubectl(
        "get", DATA_VOLUME if filled is not None else PVC, again, namespace, "-o", "yaml"
    )
    return typed(f"{found.first} and {how}" if found.first else how, shown)
