"""Nodes whose Machine goes by a scale-in: no later update replaces them.

The MachineSet chooses Machines beyond its number and deletes them. Cluster API drains their nodes
at once, and makes no successor. Source: kubernetes-sigs/cluster-api:
core/reconcilers/machineset/machineset_controller.go#syncReplicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_DEPLOYMENT, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import names
from virt_admit.model.node_updates import machine_rollouts

READS: Final[Reads] = union(
    clock.READS,
    machine_nodes.READS,
    machine_rollouts.READS,
    vmis.READS,
    {
        CAPI_MACHINE: ("metadata.deletionTimestamp",),
        MACHINE_DEPLOYMENT: ("spec.replicas",),
        VMI: ("status.evacuationNodeName",),
    },
)
_USUAL: Final = timedelta(hours=1)
"""A drain whose VMs move ends by then. One that lasts may not end, and is rehearsed."""


@cached
def nodes(cluster: Cluster) -> frozenset[str]:
    """Return the nodes that a scale-in takes away now: all their VMs are asked to leave."""
    return frozenset(
        node
        for deployment in cluster.known(MACHINE_DEPLOYMENT)
        for machine in _surplus(deployment, cluster)
        if (node := machine_nodes.node_name(machine, cluster)) and _empties(node, cluster)
    )


def words(cluster: Cluster) -> Iterator[str]:
    """Yield which nodes are not counted, as they go."""
    if leaving := nodes(cluster):
        are, their = ("is", "its") if len(leaving) == 1 else ("are", "their")
        which = names(sorted(leaving), 80)
        yield f"{which} {are} not counted: a scale-in deletes {their} Machine{'s' * (are == 'are')}"


def _surplus(deployment: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the Machines that are being deleted for an hour at most, while the others suffice."""
    every = machine_rollouts.machines_of(deployment, cluster)
    wanted = deployment.at("spec", "replicas").integer
    kept = sum(not each.deleted for each in every)
    if wanted is None or kept < wanted or machine_rollouts.is_rolling(deployment, cluster):
        return  # a successor is made, or a roll-out deletes it
    for machine in every:
        age = clock.since(machine.metadata["deletionTimestamp"].text, cluster)
        if age is not None and age < _USUAL:
            yield machine


def _empties(node: str, cluster: Cluster) -> bool:
    if vmis.unread(cluster):
        return False
    own = vmis.on_node(cluster, node)
    return all(vmi.at("status", "evacuationNodeName").text == node for vmi in own)
