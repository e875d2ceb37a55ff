"""The size of the claim into which a disk is copied: never smaller than the disk, whatever the new storage rounds.

Sources: kubevirt/containerized-data-importer:pkg/controller/datavolume/util.go#renderPvcSpecVolumeSize,
pkg/common/common.go#DefaultGlobalOverhead; kubevirt/kubevirt issue 15348.
"""

from __future__ import annotations

import math
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.quantities import parse_quantity

MIB: Final = 2**20
GIB: Final = 2**30
OVERHEAD: Final = 0.06
"""What CDI adds for the file system to the ``storage`` of a DataVolume, by default."""
MINIMUM: Final = "cdi.kubevirt.io/minimumSupportedPvcSize"
"""Annotation of a storage class."""
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_DECIMAL: Final = ("", "k", "M", "G", "T", "P")


def size(claim: Object, storage_class: str, cluster: Cluster) -> int:
    """Return the bytes for a copy of a claim; 0: its size is not known.

    The capacity counts, not the request: two storage systems round the same request differently.
    """
    bytes_ = max(
        parsed(claim.at("status", "capacity", "storage").value),
        parsed(claim.at("spec", "resources", "requests", "storage").value),
    )
    if not bytes_:
        return 0
    least = next((each for each in cluster.known(STORAGE_CLASS) if each.name == storage_class), None)
    minimum = parsed(least.annotations.get(MINIMUM)) if least is not None else 0
    return max(-(-bytes_ // MIB) * MIB, minimum)


def of_claim(bytes_: int, volume_mode: str) -> int:
    """Return the bytes of the claim that CDI makes for the ``storage`` of a DataVolume: exact, because quotas count it.

    Source: kubevirt/containerized-data-importer:pkg/controller/common/util.go#GetRequiredSpace, with the same rounding.
    """
    if volume_mode == "Block":
        return bytes_
    return math.ceil(-(-bytes_ // MIB) * MIB / (1 - OVERHEAD))


def quantity(bytes_: int) -> str:
    """Return a number as the API server writes such a quantity: ``10Gi``, ``2Ti``, ``1500Ki``, ``1001``.

    So a query finds the text that a step wrote. Source: k8s.io/apimachinery/pkg/api/resource/quantity.go#CanonicalizeBytes.
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
