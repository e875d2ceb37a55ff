"""Updates of the storage of VMs that do not go on, by the products that say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.placement.components.drivers import rook_rollouts
from virt_admit.forecasts.placement.components.drivers.rook_rollouts import HeldStorageUpdate
from virt_admit.forecasts.placement.components.longhorn import replaced_managers
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.reads import Reads, union

READS: Final[Reads] = union(rook_rollouts.READS, replaced_managers.READS)


@cached
def held(cluster: Cluster) -> Sequence[HeldStorageUpdate]:
    """Return the updates of storage that do not go on by themselves.

    A new release that rolls out is not among them: it is held only where something says why.
    """
    found = replaced_managers.held(cluster)
    own = (
        ()
        if found is None
        else (
            HeldStorageUpdate(found.manager, found.reason, found.brief, found.remedy, holds=True),
        )
    )
    return (*rook_rollouts.held(cluster), *own)
