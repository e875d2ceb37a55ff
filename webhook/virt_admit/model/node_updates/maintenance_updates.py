"""Nodes that a NodeMaintenance or the maintenance mode of Harvester empties, one by one.

Sources: medik8s/node-maintenance-operator:internal/controller/nodemaintenance_controller.go#Reconcile;
harvester/harvester:pkg/controller/master/nodedrain/nodedrain_controller.go#OnNodeChange.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase
from virt_admit.model.remediation import maintenance

REQUESTED: Final = "harvesterhci.io/drain-requested"
"""The annotation of a node that is to enter Harvester's maintenance mode, until its drain has ended."""
STATUS: Final = "harvesterhci.io/maintain-status"
"""The annotation of a node in that mode: ``running`` until its VMs have left, then ``completed``."""

READS: Final[Reads] = {
    NM: (),
    NM_KUBEVIRT: (),
    NODE: (f"metadata.annotations.{REQUESTED}", f"metadata.annotations.{STATUS}", "spec.taints"),
}
"""The fields that say that a node is emptied for maintenance."""


def is_in_maintenance(node: Object) -> bool:
    """Return whether Harvester's maintenance mode empties a node or keeps it empty."""
    return REQUESTED in node.annotations or STATUS in node.annotations


def way_back(node: Object) -> tuple[str, str]:
    """Return what lets pods onto a cordoned node again, and its command.

    While the annotation is there Harvester cordons the node again after each uncordon (harvester/harvester#5598).
    """
    name = argument(node.name)
    if not is_in_maintenance(node):
        return f"uncordon {node.name}", shell("kubectl", "uncordon", name)
    keys = [f"{key}-" for key in (REQUESTED, STATUS) if key in node.annotations]
    words = f"disable the maintenance mode of {node.name} in Harvester, which an uncordon alone does not end"
    return f"{words}; without Harvester, remove its annotations and uncordon", shell(
        "kubectl", "annotate", "node", name, *keys
    )


def of_maintenances(cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return what NodeMaintenances, and the maintenance mode of Harvester, do to each node."""
    found: dict[str, NodeUpdate] = {}
    for node in cluster.known(NODE):
        status = node.annotations.get(STATUS, "")
        if status or REQUESTED in node.annotations:
            phase = Phase.UPDATING if status == "completed" else Phase.DRAINING
            since = node_phases.cordoned_since(node)
            found[node.name] = NodeUpdate("Node", node.name, phase, since, exact=phase is Phase.DRAINING)
    for kind in maintenance.KINDS:
        for each in sorted(cluster.known(kind), key=lambda one: one.name):
            node_name = maintenance.node(each).text
            if node_name and not each.deleted:
                found[node_name] = _maintained(each, kind.kind)
    return found


_OF_PHASE: Final = {"Succeeded": Phase.UPDATING, "Failed": Phase.FAILING}


def _maintained(each: Object, kind: str) -> NodeUpdate:
    status = each["status"]
    phase = _OF_PHASE.get(status["phase"].text or "", Phase.DRAINING)
    began = clock.instant(each.metadata["creationTimestamp"].text)
    last = clock.instant(status["lastUpdate"].text)
    pending = [pod.text for pod in status["pendingPods"].items() if pod.text]
    words = status["lastError"].text or (f"pod {pending[0]}" if pending else "")
    if phase is Phase.UPDATING:
        return NodeUpdate(kind, each.name, phase, last or began, exact=last is not None)
    return NodeUpdate(kind, each.name, phase, began, exact=True, waits_for=words)


def has_failed(cluster: Cluster) -> bool:
    """Return whether a maintenance has ended with an error."""
    return any(update.phase is Phase.FAILING for update in of_maintenances(cluster).values())
