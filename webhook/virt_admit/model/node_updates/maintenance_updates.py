"""Nodes that a NodeMaintenance or Harvester empties, one by one.

Sources: medik8s/node-maintenance-operator:internal/controller/nodemaintenance_controller.go#Reconcile;
harvester/harvester:pkg/controller/master/nodedrain/nodedrain_controller.go#OnNodeChange,
:package/upgrade/upgrade_node.sh, :pkg/apis/harvesterhci.io/v1beta1/upgrade.go#UpgradeStatus.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase, PoolUpdate
from virt_admit.model.remediation import maintenance

_LATEST: Final = "harvesterhci.io/latestUpgrade"
_REQUESTED: Final = "harvesterhci.io/drain-requested"
_STATUS: Final = "harvesterhci.io/maintain-status"

READS: Final[Reads] = {
    NM: (),
    NM_KUBEVIRT: (),
    HARVESTER_UPGRADE: (f"metadata.labels.{_LATEST}", "metadata.creationTimestamp", "status"),
    NODE: (f"metadata.annotations.{_REQUESTED}", f"metadata.annotations.{_STATUS}", "spec.taints"),
}
"""The fields that say that a node is emptied for maintenance."""


def of_maintenances(cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return what NodeMaintenances, and the maintenance mode of Harvester, do to each node."""
    found: dict[str, NodeUpdate] = {}
    for node in cluster.known(NODE):
        status = node.annotations.get(_STATUS, "")
        if status or _REQUESTED in node.annotations:
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


_HARVESTER: Final = {
    "Pre-draining": Phase.DRAINING,
    "Pre-drained": Phase.DRAINING,
    "Post-draining": Phase.UPDATING,
    "Waiting Reboot": Phase.REBOOTING,
    "Succeeded": Phase.DONE,
    "Failed": Phase.FAILING,
}
"""The phase of each state of a node in an Upgrade; the others are before its turn."""
_PAUSED: Final = "Node-upgrade paused"


def harvester(cluster: Cluster) -> Iterator[PoolUpdate]:
    """Yield the upgrade of Harvester that is under way or has ended last."""
    latest = [each for each in cluster.known(HARVESTER_UPGRADE) if each.labels.get(_LATEST) == "true"]
    for upgrade in sorted(latest, key=lambda each: each.metadata["creationTimestamp"].text or "")[-1:]:
        if upgrade.condition("Completed")["status"].text not in ("True", "False"):
            yield _upgraded(upgrade, cluster)


def has_failed(cluster: Cluster) -> bool:
    """Return whether the last upgrade of Harvester, or a maintenance, has ended with an error."""
    latest = [each for each in cluster.known(HARVESTER_UPGRADE) if each.labels.get(_LATEST) == "true"]
    return any(each.condition("Completed")["status"].text == "False" for each in latest) or any(
        update.phase is Phase.FAILING for update in of_maintenances(cluster).values()
    )


def _upgraded(upgrade: Object, cluster: Cluster) -> PoolUpdate:
    states = upgrade.at("status", "nodeStatuses")
    nodes: dict[str, NodeUpdate] = {}
    for node in sorted(cluster.known(NODE), key=lambda each: each.name):
        found = states[node.name]
        phase = _HARVESTER.get(found["state"].text or "", Phase.WAITING)
        words = ": ".join(filter(None, (found["reason"].text, found["message"].text)))
        since = node_phases.cordoned_since(node) if phase in node_phases.IN_FLIGHT else None
        silent = node_phases.unready_since(node) if phase is Phase.REBOOTING else None
        nodes[node.name] = NodeUpdate(
            "Upgrade", upgrade.name, phase, silent or since, phase is Phase.DRAINING or silent is not None, words
        )
    begun = any(update.phase in node_phases.IN_FLIGHT for update in nodes.values())
    waiting = [name for name, update in nodes.items() if update.phase is Phase.WAITING]
    paused = tuple(name for name in waiting if states[name]["state"].text == _PAUSED)
    for name in [] if begun or paused else waiting[:1]:  # one node at a time
        nodes[name] = NodeUpdate("Upgrade", upgrade.name, Phase.NEXT)
    began = clock.instant(upgrade.metadata["creationTimestamp"].text)
    return PoolUpdate("Upgrade", upgrade.name, nodes, began, paused=paused)
