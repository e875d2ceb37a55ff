"""What may remediate a node although no health check of this cluster does: its owner outside, or Harvester itself.

Sources: openshift/hypershift:hypershift-operator/controllers/nodepool (label of the nodes, and a MachineHealthCheck in the
management cluster); harvester/harvester:pkg/controller/master/node/node_down_controller.go#checkNodeReady (on by default).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.nodes import is_control_plane
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {kinds.NODE: ("metadata.annotations", "metadata.labels"), kinds.CAPI_MACHINE: ()}

_LABELS: Final[Mapping[str, str]] = {
    "hypershift.openshift.io/nodePool": "the management cluster of HyperShift, which has the NodePool of node {}",
    "harvesterhci.io/managed": "Harvester's setting vm-force-reset-policy, which frees the pods of lost nodes",
}
"""Labels of Nodes, each with what may remediate them and is not read."""


def is_single(cluster: Cluster) -> bool:
    """Whether the control plane and all VMs certainly share one node: no health check can run after its loss."""
    found, unseen = gather(cluster.list(kinds.NODE))
    return len(found) == 1 and not unseen and is_control_plane(found[0])


def outside(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what may remediate a node and is not read. Nothing for a Node that cannot be read."""
    try:
        found = cluster.get(kinds.NODE, "", node)
    except Unseen:
        return
    if found is None:
        return
    name = found.annotations.get(machine_nodes.CAPI_OWNER)
    if name and all(machine.name != name for machine in cluster.known(kinds.CAPI_MACHINE)):
        yield f"the management cluster of Cluster API, which has Machine {name} of node {node}"
    yield from (what.format(node) for label, what in _LABELS.items() if label in found.labels)
