"""The controller of a storage that frees a VM from a lost node, whichever has its volumes."""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.components.drivers import stork_failovers
from virt_admit.forecasts.placement.components.linstor import failovers
from virt_admit.forecasts.placement.components.linstor.failovers import Failover
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union

READS: Final = union(failovers.READS, stork_failovers.READS)


def of_vmi(vmi: Object, cluster: Cluster) -> Failover | None:
    """Return the controller that frees a running VM once its node is lost; None: none does."""
    return failovers.of_vmi(vmi, cluster) or stork_failovers.of_vmi(vmi, cluster)
