"""The nodes that MachineDeletionRemediation leaves alone,
because it has no Machine to delete or may not delete it.

Source: medik8s/machine-deletion-remediation:
internal/controller/machinedeletionremediation_controller.go#getMachine.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import MACHINE, NODE
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.remediation import machines, refused_nodes
from virt_admit.model.remediation.refused_nodes import Refused

READS: Final[Reads] = {
    NODE: (f"metadata.annotations.{machine_nodes.OWNER}",),
    MACHINE: ("metadata.ownerReferences", "status.nodeRef"),
}
"""The fields that ``refused`` reads."""


def refused(nodes: Selection, cluster: Cluster) -> Refused:
    """Return which of these nodes stay as they are."""
    return refused_nodes.refused(nodes, lambda node: refusal(node, cluster))


def refusal(node: Object, cluster: Cluster) -> str:
    """Return why the Machine of a Node is not deleted; empty if it is deleted.

    A Machine that names the Node has it. Then the annotation is only late.

    Raises:
        Unseen: the Machine cannot be read.
    """
    annotation = node.annotations.get(machine_nodes.OWNER)
    if annotation is None:
        owned, unseen = cluster.cached(_owned)
        if unseen and node.name not in owned:
            raise Unseen(unseen)
        return "" if node.name in owned else "no Machine exists"
    namespace, _, name = annotation.partition("/")
    machine = cluster.get(MACHINE, namespace, name)
    if machine is None:
        return "no Machine exists"
    return "" if machine.controller is not None else "its Machine has no controller"


def _owned(cluster: Cluster) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Machines name, and what could not be read."""
    found, unseen = gather(cluster.list(MACHINE))
    return frozenset(machines.node_name(machine) for machine in found), unseen
