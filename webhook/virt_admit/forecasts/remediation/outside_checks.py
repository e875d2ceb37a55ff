"""What may remediate a node although nothing that was read does: its owner outside,
or Harvester itself.

Source: openshift/hypershift:hypershift-operator/controllers/nodepool (label of the nodes, and a
MachineHealthCheck in the management cluster).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from virt_admit.forecasts.remediation import coverage, harvester_reset
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds, nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.lookups import find

READS: Final[Reads] = {
    kinds.NODE: ("metadata.annotations", "metadata.labels"),
    kinds.CAPI_MACHINE: (),
}

_LOCAL: Final = "fleet-local"
"""Rancher's namespace for the cluster in which it runs, as in Harvester: it manages itself
(rancher/rancher:pkg/controllers/management/auth/globalroles/
fleetworkspace_role_handler.go#localFleetWorkspace).
"""
_NODE_POOL: Final = "hypershift.openshift.io/nodePool"


def is_single(cluster: Cluster) -> bool:
    """Whether the control plane and all VMs certainly share one node:
    no health check can run after its loss.
    """
    return bool(nodes.single(cluster)) and nodes.is_control_plane(nodes.every(cluster)[0])


def uncovered(nodes: Mapping[str, Iterable[Object]], cluster: Cluster) -> tuple[str, ...] | None:
    """Return the nodes that no health check can remediate and with a VMI that would start again;
    None: unknown.

    Args:
        nodes: the VMIs of each node.
        cluster: the cluster.
    """
    if cluster.cached(is_single):
        return ()
    covered = coverage.coverage(cluster)
    bare = ((name, vms) for name, vms in nodes.items() if name not in covered.nodes)
    found = [name for name, vms in bare if any(vmis.may_return(vmi, cluster) for vmi in vms)]
    doubts = covered.unseen or not covered.unsure.keys().isdisjoint(found)
    doubts = doubts or any(True for name in found for _ in outside(name, cluster))
    return None if doubts and found else tuple(sorted(found))


def outside(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what may remediate a node and is not read. Nothing for a Node that cannot be read."""
    found = find(cluster, kinds.NODE, "", node)
    if found is None:
        return
    name = found.annotations.get(machine_nodes.CAPI_OWNER)
    here = found.annotations.get(machine_nodes.CAPI_SPACE) == _LOCAL
    known = (machine.name for machine in cluster.known(kinds.CAPI_MACHINE))
    if name and not here and name not in known:
        yield f"the management cluster of Cluster API, which has Machine {name} of node {node}"
    if _NODE_POOL in found.labels:
        yield f"the management cluster of HyperShift, which has the NodePool of node {node}"
    try:
        harvester_reset.of(found, cluster)
    except Unseen as unseen:
        yield unseen.what
