"""Migrations that copy disks to claims which are smaller than these disks.

KubeVirt takes a destination claim with the same request, and the storage of the source may have
given more than was asked for. No node takes the copy then. Source:
kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go (``destination volume is
smaller``); issue 15348.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PVC, STORAGE_CLASS, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import amounts, are_quantities

READS: Final[Reads] = {
    VMI: ("status.migratedVolumes",),
    PVC: ("spec.storageClassName", "status.capacity"),
    STORAGE_CLASS: ("allowVolumeExpansion",),
}
SIZE_REMEDY: Final = (
    "provide destination claims of at least the size of the disks, or set the former claims in the "
    "VM again"
)
_SAID: Final = "destination volume"


class _Copy(NamedTuple):
    """A copy to a claim that is too small."""

    source: str
    target: str
    needed: str
    has: str

    @property
    def words(self) -> str:
        return f"claim {self.target} has {self.has}, and the disk on {self.source} {self.needed}"


def is_of_size(texts: Collection[str]) -> bool:
    """Return whether each of these failures of migrations says that a claim is too small."""
    return bool(texts) and all(_SAID in text.lower() for text in texts)


def problem(vmi: Object, texts: Collection[str], cluster: Cluster) -> Problem | None:
    """Return that no node can take the copy of a disk; None: its migrations failed for another
    reason, or the claims have been expanded since.
    """
    if not is_of_size(texts) or has_grown(vmi, cluster):
        return None
    small = list(_too_small(vmi, cluster))
    which = f": {names((each.words for each in small), 300)}" if small else ""
    reason = (
        "its migrations copy its disks, and fail on every node as the destination volume is "
        f"smaller than the source volume{which}"
    )
    way = _expansion(vmi, small[0], cluster) if small else SIZE_REMEDY
    return Problem(reason, way, ProblemCause.MIGRATION_FAILS)


def has_grown(vmi: Object, cluster: Cluster) -> bool:
    """Return whether each claim to which a VMI copies its disks is known to be large enough now."""
    copies = list(vmi.at("status", "migratedVolumes").items())
    sizes = [(_bytes(_claim(vmi, each, cluster)), _bytes(each["sourcePVCInfo"])) for each in copies]
    return bool(sizes) and all(has and needs and has >= needs for has, needs in sizes)


def _too_small(vmi: Object, cluster: Cluster) -> Iterator[_Copy]:
    for each in vmi.at("status", "migratedVolumes").items():
        source, claim = each["sourcePVCInfo"], _claim(vmi, each, cluster)
        has, needed = _bytes(claim), _bytes(source)
        if has and needed and has < needed:
            names_of = (source["claimName"], each.at("destinationPVCInfo", "claimName"))
            yield _Copy(
                names_of[0].text or "?",
                names_of[1].text or "?",
                source.at("capacity", "storage").text or "",
                claim.at("capacity", "storage").text or "",
            )


def _claim(vmi: Object, volume: Field, cluster: Cluster) -> Field:
    """Return the state of a destination claim: as it is now, else as the VMI has noted it."""
    noted = volume["destinationPVCInfo"]
    claim = find(cluster, PVC, vmi.namespace, noted["claimName"].text)
    now = claim["status"] if claim is not None else noted
    return now if now.at("capacity", "storage").present else noted


def _bytes(claim: Field) -> int:
    """Return the capacity of a claim; 0: not known."""
    capacity = claim["capacity"].map
    return amounts(capacity).get("storage", 0) if are_quantities(capacity) else 0


def _expansion(vmi: Object, copy: _Copy, cluster: Cluster) -> str:
    """Return how a claim becomes large enough, where its class allows that."""
    claim = find(cluster, PVC, vmi.namespace, copy.target)
    kind = claim.at("spec", "storageClassName").text if claim is not None else None
    of_class = find(cluster, STORAGE_CLASS, "", kind)
    if of_class is None or of_class["allowVolumeExpansion"].boolean is not True:
        return SIZE_REMEDY
    data = {"spec": {"resources": {"requests": {"storage": copy.needed}}}}
    return typed(
        f"expand claim {copy.target} to at least {copy.needed}",
        merge_patch(PVC, copy.target, vmi.namespace, data),
        f"or name {copy.source} in the VM again, which ends the copy",
    )
