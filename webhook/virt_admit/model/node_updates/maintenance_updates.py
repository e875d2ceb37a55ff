"""Nodes that a NodeMaintenance or the maintenance mode of Harvester empties, one by one.

Sources:
medik8s/node-maintenance-operator:internal/controller/nodemaintenance_controller.go#Reconcile;
harvester/harvester:pkg/controller/master/nodedrain/nodedrain_controller.go#OnNodeChange.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase
from virt_admit.model.remediation import machine_drain, maintenance

REQUESTED: Final = "harvesterhci.io/drain-requested"
"""The annotation of a node that is to enter Harvester's maintenance mode,
until its drain has ended.
"""
FORCED: Final = "harvesterhci.io/drain-forced"
"""The annotation of such a node whose VMs are to be shut down for it."""
STATUS: Final = "harvesterhci.io/maintain-status"
"""The annotation of a node in that mode: ``running`` until its VMs have left,
then ``completed``.
"""

READS: Final[Reads] = union(
    machine_drain.DELETED_READS,
    {
        NM: (),
        NM_KUBEVIRT: (),
        NODE: (
            f"metadata.annotations.{REQUESTED}",
            f"metadata.annotations.{FORCED}",
            f"metadata.annotations.{STATUS}",
            "spec.taints",
            *CONDITIONS,
            "status.conditions.message",
            "status.conditions.reason",
        ),
    },
)
"""The fields that say that a node is emptied for maintenance."""


def is_in_maintenance(node: Object) -> bool:
    """Return whether Harvester's maintenance mode empties a node or keeps it empty."""
    return REQUESTED in node.annotations or STATUS in node.annotations


def is_requested(node: Object) -> bool:
    """Return whether Harvester is asked to empty a node, and has not done so:
    its maintenance mode has not begun.
    """
    return REQUESTED in node.annotations and STATUS not in node.annotations


def cordoner(node: Object) -> str:
    """Return what keeps a node cordoned that ``is_in_maintenance``."""
    if is_requested(node):
        return "an unfinished maintenance request of Harvester"
    return "the maintenance mode of Harvester"


def way_back(node: Object, *others: Object) -> tuple[str, str]:
    """Return what lets pods onto cordoned nodes again, and its command.

    ``others``: more that are in the same state.

    While the annotation is there Harvester cordons the node again after each uncordon
    (harvester/harvester#5598). It offers to disable only a mode that has begun
    (harvester/harvester:pkg/api/node/formatter.go#Formatter).
    """
    every = [node, *others]
    which, them = names(each.name for each in every), "them" if others else "it"
    plain = [argument(each.name) for each in every]
    if not is_in_maintenance(node):
        return f"uncordon {which}", shell("kubectl", "uncordon", *plain)
    marks = [
        key for key in (REQUESTED, FORCED, STATUS) if any(key in each.annotations for each in every)
    ]
    command = shell("kubectl", "annotate", "node", *plain, *(f"{key}-" for key in marks))
    if is_requested(node):
        again = (
            f"because of which Harvester cordons {them} again after each uncordon, then uncordon "
            f"{them}"
        )
        return (
            f"unless that maintenance is still wanted, take its request off {which}, {again}",
            command,
        )
    begin = f"once the maintenance is over or given up, disable the maintenance mode of {which}"
    end = (
        "which an uncordon alone does not end; without Harvester, remove its annotations and "
        "uncordon"
    )
    return f"{begin} in Harvester, {end}", command


def cordoned_again(node: Object, cluster: Cluster) -> str:
    """Return how it shows that Harvester cordons a node again and again; empty: nothing shows it,
    it may just empty it.
    """
    uncordoned = events.known(NODE.kind, "NodeSchedulable", cluster)
    seen = (each for each in uncordoned if each.at("involvedObject", "name").text == node.name)
    times = sum(each["count"].integer or 1 for each in seen)
    if times >= _OFTEN and node.at("spec", "unschedulable").boolean:
        return f"{node.name} was uncordoned {times} times and cordoned again ({REQUESTED})"
    failed = node.condition("MaintenanceMode")
    if failed["status"].text == "False" and failed["reason"].text == "Error":
        return (
            f"its drain for the maintenance of {node.name} fails: "
            f"{cut_middle(failed['message'].text or '?', 150)}"
        )
    lasts = clock.elapsed(node_phases.cordoned_since(node), cluster)
    long = lasts is not None and lasts > _LONG
    return f"{node.name} is cordoned{clock.lasts(lasts)}" if long else ""


_OFTEN: Final = 2
_LONG: Final = timedelta(hours=1)
"""Harvester takes the request off when the drain has ended,
so it stays where a drain does not end.
"""


def of_maintenances(cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return what NodeMaintenances, and the maintenance mode of Harvester, do to each node."""
    found: dict[str, NodeUpdate] = {}
    for node in cluster.known(NODE):
        status = node.annotations.get(STATUS, "")
        if status or REQUESTED in node.annotations:
            phase = Phase.UPDATING if status == "completed" else Phase.DRAINING
            since = node_phases.cordoned_since(node)
            leaves = next(machine_drain.deleted_of(node.name, cluster), None)
            if leaves is not None and phase is Phase.UPDATING:
                found[node.name] = _leaving(leaves)
                continue
            found[node.name] = NodeUpdate(
                "Node", node.name, phase, since, exact=phase is Phase.DRAINING
            )
    for kind in maintenance.KINDS:
        for each in sorted(cluster.known(kind), key=lambda one: one.name):
            node_name = maintenance.node(each).text
            if node_name and not each.deleted:
                found[node_name] = _maintained(each, kind.kind)
    return found


def _leaving(machine: Object) -> NodeUpdate:
    """Return that Cluster API drains a node for good: its maintenance does not end before."""
    words, began = machine_drain.reported(machine)
    began = began or clock.instant(machine.metadata["deletionTimestamp"].text)
    phase = Phase.UPDATING if machine_drain.is_drained(machine) else Phase.DRAINING
    return NodeUpdate(machine.kind, machine.name, phase, began, exact=True, waits_for=words)


_OF_PHASE: Final = {"Succeeded": Phase.UPDATING, "Failed": Phase.FAILING}


def _maintained(each: Object, kind: str) -> NodeUpdate:
    status = each["status"]
    phase = _OF_PHASE.get(status["phase"].text or "", Phase.DRAINING)
    began = clock.instant(each.created)
    last = clock.instant(status["lastUpdate"].text)
    pending = [pod.text for pod in status["pendingPods"].items() if pod.text]
    words = status["lastError"].text or (f"pod {pending[0]}" if pending else "")
    if phase is Phase.UPDATING:
        return NodeUpdate(kind, each.name, phase, last or began, exact=last is not None)
    return NodeUpdate(kind, each.name, phase, began, exact=True, waits_for=words)


def has_failed(cluster: Cluster) -> bool:
    """Return whether a maintenance has ended with an error."""
    return any(update.phase is Phase.FAILING for update in of_maintenances(cluster).values())
