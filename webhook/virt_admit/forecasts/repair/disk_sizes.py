"""The size of the claim into which a disk is copied: never smaller than the disk,
whatever the new storage rounds.

Sources:
kubevirt/containerized-data-importer:pkg/controller/datavolume/util.go#renderPvcSpecVolumeSize,
pkg/controller/config-controller.go#reconcileFilesystemOverhead; kubevirt/kubevirt issue 15348.
"""

from __future__ import annotations

import math
import re
from typing import Final

from virt_admit.forecasts.repair.repair_plan import DiskCopy
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, STORAGE_PROFILE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.lookups import find

READS: Final[Reads] = {
    CDI: ("spec.config.filesystemOverhead", "status.observedVersion"),
    STORAGE_PROFILE: (),
}

MIB: Final = 2**20
GIB: Final = 2**30
_SHARE: Final = re.compile(r"0(\.\d{1,3})?|1")
_OF_THE_DISK: Final = Version(1, 63)
"""The first release of CDI whose overhead is a share of the disk; before, of the claim."""
MINIMUM: Final = "cdi.kubevirt.io/minimumSupportedPvcSize"
"""Annotation of a storage profile."""
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_DECIMAL: Final = ("", "k", "M", "G", "T", "P")


def size(claim: Object) -> int:
    """Return the bytes of the disk for a copy of a claim, in whole MiB; 0: its size is not known.

    The capacity counts, not the request: two storage systems round the same request differently.
    """
    bytes_ = max(
        parsed(claim.at("status", "capacity", "storage").value),
        parsed(claim.at("spec", "resources", "requests", "storage").value),
    )
    return _whole(bytes_)


def of_claim(copy: DiskCopy, cluster: Cluster) -> int:
    """Return the bytes of the claim that CDI makes for the ``storage`` of a DataVolume: exact,
    because quotas count it.

    If the release of CDI is not known, it is the larger one of both ways to add the overhead.
    """
    bytes_ = copy.size
    if copy.volume_mode != "Block":
        cdi = next(iter(cluster.known(CDI)), None)
        share, release = _overhead(copy.storage_class, cdi), _release(cdi)
        of_disk = math.ceil(_whole(bytes_) * (1 + share))
        of_whole = math.ceil(_whole(bytes_) / (1 - share)) if share < 1 else of_disk
        bytes_ = (
            max(of_disk, of_whole)
            if release is None
            else of_disk
            if release >= _OF_THE_DISK
            else of_whole
        )
    profile = find(cluster, STORAGE_PROFILE, "", copy.storage_class)
    return max(bytes_, parsed(profile.annotations.get(MINIMUM)) if profile is not None else 0)


def _release(cdi: Object | None) -> Version | None:
    return parse_version(cdi.at("status", "observedVersion").text) if cdi is not None else None


def _overhead(storage_class: str, cdi: Object | None) -> float:
    """Return the share that CDI adds for a class; what it does not accept counts as its default."""
    if cdi is None:
        return float(storage.OVERHEAD)
    found = cdi.at("spec", "config", "filesystemOverhead")
    for share in (found["storageClass"].map.get(storage_class), found["global"].value):
        if isinstance(share, str) and _SHARE.fullmatch(share):
            return float(share)
    return float(storage.OVERHEAD)


def _whole(bytes_: int) -> int:
    return -(-bytes_ // MIB) * MIB


def quantity(bytes_: int) -> str:
    """Return a number as the API server writes such a quantity: ``10Gi``, ``2Ti``, ``1500Ki``,
    ``1001``.

    So a query finds the text that a step wrote. Source:
    k8s.io/apimachinery/pkg/api/resource/quantity.go#CanonicalizeBytes.
    """
    for power in (5, 4, 3, 2, 1):
        if bytes_ and bytes_ % 1024**power == 0:
            return f"{bytes_ // 1024**power}{_BINARY[power]}"
    for power in (5, 4, 3, 2, 1):
        if bytes_ and bytes_ % 1000**power == 0:
            return f"{bytes_ // 1000**power}{_DECIMAL[power]}"
    return str(bytes_)


def gib(bytes_: int) -> int:
    """Return bytes in GiB, rounded up."""
    return -(-bytes_ // GIB)


def parsed(value: object) -> int:
    """Return a quantity as a whole number, rounded up; 0: it is not one."""
    try:
        return math.ceil(parse_quantity(value, integers=True))
    except ValueError:
        return 0
