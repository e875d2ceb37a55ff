"""What may remediate a node although nothing that was read does: its owner outside,
or Harvester itself.

Source: openshift/hypershift:hypershift-operator/controllers/nodepool (label of the nodes, and a
MachineHealthCheck in the management cluster).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.remediation import coverage, harvester_reset
from virt_admit.forecasts.remediation.unwatched import cloud_instances, vm_returns
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds, nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.lookups import find
from virt_admit.model.node_updates.operators import orphaned_nodes

READS: Final = union(
    cloud_instances.READS,
    vm_returns.READS,
    orphaned_nodes.READS,
    {kinds.NODE: ("metadata.annotations", "metadata.labels"), kinds.CAPI_MACHINE: ()},
)

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
    """Return the nodes that no health check can remediate and with a VMI that would start again,
    and that nothing else brings back; None: unknown.

    Args:
        nodes: the VMIs of each node.
        cluster: the cluster.
    """
    if cluster.cached(is_single):
        return ()
    covered = coverage.coverage(cluster)
    bare = ((name, vms) for name, vms in nodes.items() if name not in covered.nodes)
    left = {name: _left(vms, cluster) for name, vms in bare}
    found = [name for name, vms in left.items() if vms]
    returns = (vm_returns.of_vmi(vmi, cluster) for vms in left.values() for vmi in vms)
    doubts = bool(covered.unseen) or not covered.unsure.keys().isdisjoint(found)
    doubts = doubts or any(each is not None and each.unsure for each in returns)
    doubts = doubts or any(True for name in found for _ in outside(name, cluster))
    return None if doubts and found else tuple(sorted(found))


def _left(vms: Iterable[Object], cluster: Cluster) -> list[Object]:
    """Return the VMIs that would start again, without those that something certainly brings back
    without a health check of their node.
    """
    found = []
    for vmi in vms:
        if vmis.may_return(vmi, cluster):
            other = vm_returns.of_vmi(vmi, cluster)
            if other is None or other.unsure:
                found.append(vmi)
    return found


def otherwise(
    nodes: Mapping[str, Iterable[Object]], cluster: Cluster
) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return what brings VMs of a lost node back where no health check can remediate it, with
    these VMs by their nodes.
    """
    covered = coverage.coverage(cluster)
    found: dict[str, dict[str, list[str]]] = {}
    for name, vms in sorted(nodes.items()):
        bare = [vmi for vmi in vms if name not in covered.nodes and _returns(vmi, cluster)]
        for vmi in bare:
            other = vm_returns.of_vmi(vmi, cluster)
            if other is not None and not other.unsure:
                found.setdefault(other.by, {}).setdefault(name, []).append(vmi.full_name)
        if bare and cloud_instances.is_deleted_with_instance(name, cluster):
            found.setdefault(cloud_instances.BY, {})[name] = [vmi.full_name for vmi in bare]
    return dict(sorted(found.items()))


def _returns(vmi: Object, cluster: Cluster) -> bool:
    try:
        return vmis.comes_back(vmi, cluster, lost=True).comes
    except Unseen:
        return False


def _machines(cluster: Cluster) -> frozenset[str]:
    return frozenset(machine.name for machine in cluster.known(kinds.CAPI_MACHINE))


def outside(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what may remediate a node and is not read. Nothing for a Node that cannot be read."""
    found = find(cluster, kinds.NODE, "", node)
    if found is None:
        return
    name = found.annotations.get(machine_nodes.CAPI_OWNER)
    here = found.annotations.get(machine_nodes.CAPI_SPACE) == _LOCAL
    is_gone = orphaned_nodes.of_node(node, cluster) is not None
    if name and not here and not is_gone and name not in cluster.cached(_machines):
        yield f"the management cluster of Cluster API, which has Machine {name} of node {node}"
    if _NODE_POOL in found.labels:
        yield f"the management cluster of HyperShift, which has the NodePool of node {node}"
    try:
        harvester_reset.of(found, cluster)
    except Unseen as unseen:
        yield unseen.what
