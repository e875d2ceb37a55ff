"""What may remediate a node although nothing that was read does: its owner outside,
or Harvester itself.

Source: openshift/hypershift:hypershift-operator/controllers/nodepool (label of the nodes, and a
MachineHealthCheck in the management cluster).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.remediation import harvester_reset
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.nodes import is_control_plane
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find

READS: Final[Reads] = {
    kinds.NODE: ("metadata.annotations", "metadata.labels"),
    kinds.CAPI_MACHINE: (),
}

_NODE_POOL: Final = "hypershift.openshift.io/nodePool"


def is_single(cluster: Cluster) -> bool:
    """Whether the control plane and all VMs certainly share one node:
    no health check can run after its loss.
    """
    found, unseen = gather(cluster.list(kinds.NODE))
    return len(found) == 1 and not unseen and is_control_plane(found[0])


def outside(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what may remediate a node and is not read. Nothing for a Node that cannot be read."""
    found = find(cluster, kinds.NODE, "", node)
    if found is None:
        return
    name = found.annotations.get(machine_nodes.CAPI_OWNER)
    if name and all(machine.name != name for machine in cluster.known(kinds.CAPI_MACHINE)):
        yield f"the management cluster of Cluster API, which has Machine {name} of node {node}"
    if _NODE_POOL in found.labels:
        yield f"the management cluster of HyperShift, which has the NodePool of node {node}"
    try:
        harvester_reset.of(found, cluster)
    except Unseen as unseen:
        yield unseen.what
