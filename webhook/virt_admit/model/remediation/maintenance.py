"""NodeMaintenance of the medik8s operator and of its KubeVirt predecessor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model import kinds
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import NM, NM_KUBEVIRT, Kind
from virt_admit.model.objects import Field, Object

KINDS: Final[tuple[Kind, ...]] = (NM, NM_KUBEVIRT)


def node(maintenance: Object) -> Field:
    """Return the field with the name of the node to drain."""
    return maintenance.at("spec", "nodeName")


def others(maintenance: Object, cluster: Cluster) -> Iterator[Object | Unseen]:
    """Yield the other maintenances of both groups, and the kinds that could not be read."""
    for kind in KINDS:
        try:
            for other in cluster.list(kind):
                if other.name != maintenance.name or kinds.of(other) is not kinds.of(maintenance):
                    yield other
        except Unseen as unseen:
            yield unseen
