"""What deleting a Machine does to the VMs on its node."""

from __future__ import annotations

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.vmi_evictions import Evictions
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation.machines import UNDRAINED, node_name


def evictions(machine: Object, cluster: Cluster) -> Evictions:
    """Return the VMI evictions that deleting a Machine causes; none if its node is not drained."""
    name = node_name(machine)
    return (
        vmi_evictions.evictions(cluster, name)
        if name and not machine.annotation(UNDRAINED).present
        else Evictions()
    )
