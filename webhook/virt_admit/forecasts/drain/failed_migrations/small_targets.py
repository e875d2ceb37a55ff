"""Migrations that copy disks to claims which are smaller than these disks.

KubeVirt takes a destination claim with the same request, and the storage of the source may have
given more than was asked for. No node takes the copy then. Source:
kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go (``destination volume is
smaller``); issue 15348.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PVC, STORAGE_CLASS, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import storage
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
    reason.

    ``texts``: failures that are not past.
    """
    if not is_of_size(texts):
        return None
    small = list(_too_small(vmi, cluster))
    which = f": {names((each.words for each in small), 300)}" if small else ""
    reason = (
        "its migrations copy its disks, and fail on every node as the destination volume is "
        f"smaller than the source volume{which}"
    )
    way = _expansion(vmi, small[0], cluster) if small else SIZE_REMEDY
    return Problem(reason, way, ProblemCause.MIGRATION_FAILS)


def is_past(vmi: Object, cluster: Cluster) -> bool:
    """Return whether failures for the size of a claim say nothing of the next migration: it copies
    no disk any more, or each claim to which it does is known to be large enough now."""
    copies = vmi.at("status", "migratedVolumes").items()
    sizes = [
        (_usable(_claim(vmi, each, cluster)), _bytes(each["sourcePVCInfo"])) for each in copies
    ]
    return all(has and needs and has >= needs for has, needs in sizes)


def _too_small(vmi: Object, cluster: Cluster) -> Iterator[_Copy]:
    for each in vmi.at("status", "migratedVolumes").items():
        source, claim = each["sourcePVCInfo"], _claim(vmi, each, cluster)
        has, needed = _bytes(claim.now), _bytes(source)
        if has and needed and has < needed:
            yield _Copy(
                source["claimName"].text or "?",
                claim.noted["claimName"].text or "?",
                source.at("capacity", "storage").text or "",
                claim.now.at("capacity", "storage").text or "",
            )


class _Target(NamedTuple):
    """A destination claim."""

    noted: Field
    """What the VMI has noted of it."""
    now: Field
    """Its capacity as it is now, else as the VMI has noted it."""


def _claim(vmi: Object, volume: Field, cluster: Cluster) -> _Target:
    noted = volume["destinationPVCInfo"]
    claim = find(cluster, PVC, vmi.namespace, noted["claimName"].text)
    now = claim["status"] if claim is not None else noted
    return _Target(noted, now if now.at("capacity", "storage").present else noted)


def _usable(claim: _Target) -> float:
    """Return the bytes of a claim that a disk may take: a file system needs some for itself."""
    text = claim.noted["filesystemOverhead"].text or ""
    share = float(text if _SHARE.fullmatch(text) else storage.OVERHEAD)
    is_block = claim.noted["volumeMode"].text == "Block"
    return _bytes(claim.now) * (1 - (0 if is_block else share))


_SHARE: Final = re.compile(r"0(?:\.[0-9]{1,6})?")


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
