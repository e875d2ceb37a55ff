"""Nodes of Harvester that no Machine has: Rancher drains and updates machine by machine, so that it
never comes to such a node, and the upgrade waits for it without an error.

Harvester 1.6 and later refuses to start an upgrade then. An Upgrade keeps the entry of a node that
is deleted meanwhile. Sources: rancher/rancher:pkg/capr/planner/planner.go (the plan of each Machine
of a Cluster); harvester/harvester:pkg/webhook/resources/upgrade/validator.go#isNodeMachineMatching,
:pkg/controller/master/upgrade/common.go#setNodeUpgradeStatus (all entries have to succeed),
:pkg/controller/master/upgrade/node_controller.go (the annotation); harvester/harvester#8236;
https://docs.harvesterhci.io (deleting a node; start over an upgrade).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence.writes.fleet_objects import LOCAL
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import count
from virt_admit.model.node_updates import harvester_upgrades, update_orders
from virt_admit.model.node_updates.node_phases import Phase
from virt_admit.model.node_updates.update_orders import StandingOrder

READS: Final[Reads] = union(
    clock.READS,
    harvester_upgrades.READS,
    machine_nodes.READS,
    {NODE: ("metadata.creationTimestamp", f"metadata.labels.{nodes.HARVESTER}")},
)
_JOINED: Final = timedelta(hours=1)
"""A node that joins has its Machine by then."""


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrade of Harvester for each node that Rancher never updates."""
    for order, update in harvester_upgrades.going(cluster):
        for node in _machineless(cluster):
            state = harvester_upgrades.state(order, node.name)
            if update.nodes[node.name].phase not in (Phase.WAITING, Phase.NEXT):
                continue
            title, said = update_orders.title(order), f" ({state})" if state else ""
            why = f"{node.name}{said} is never drained nor updated: {_why(node, cluster)}"
            then = (
                f"{title} keeps its entry of {node.name}, so that it does not end by itself: start "
                "the upgrade over as the page of Harvester on that describes"
            )
            brief = f"{node.name} is never updated: no Machine of {LOCAL} has it"
            yield StandingOrder(
                order, f"{title} does not end: {why}", _remedy(node, then), True, brief, node.name
            )


def refusals(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the nodes with which no upgrade of Harvester ends, while none is under way."""
    if next(harvester_upgrades.upgrades(cluster), None) is None:
        for node in _machineless(cluster):
            brief = f"no Machine of {LOCAL} has this node, so that no upgrade of Harvester ends"
            reason = (
                f"no upgrade of Harvester ends with {node.name}, and 1.6 and later do not start "
                f"one: {_why(node, cluster)}"
            )
            yield StandingOrder(node, reason, _remedy(node, ""), True, brief, node.name)


def _machineless(cluster: Cluster) -> Iterator[Object]:
    """Yield the nodes that certainly have no Machine. One that has no node yet may be theirs."""
    machines = _machines(cluster)
    if unlisted(cluster, CAPI_MACHINE) or not machines:
        return
    named = {each.at("status", "nodeRef", "name").text for each in machines}
    if None in named:
        return
    present = {each.name for each in machines}
    for node in sorted(cluster.known(NODE), key=lambda each: each.name):
        own = node.annotations.get(machine_nodes.CAPI_OWNER)
        settled = clock.has_lasted(node.created, _JOINED, cluster)
        unknown = node.name not in named and own not in present
        if nodes.is_of_harvester(node) and unknown and settled:
            yield node


def _machines(cluster: Cluster) -> Sequence[Object]:
    return cluster.known(CAPI_MACHINE, LOCAL)


def _why(node: Object, cluster: Cluster) -> str:
    """Return why Rancher does not know a node."""
    own = node.annotations.get(machine_nodes.CAPI_OWNER)
    said = (
        f"names Machine {own}, which does not exist"
        if own
        else f"has no annotation {machine_nodes.CAPI_OWNER}"
    )
    has = count(len(_machines(cluster)), "Machine")
    all_nodes = count(len(cluster.known(NODE)), "node")
    return (
        f"Rancher updates the nodes of Machines, and none in {LOCAL} has nodeRef {node.name} "
        f"({has} for {all_nodes}), which {said}"
    )


def _remedy(node: Object, then: str) -> str:
    """Return how a node gets a Machine: where it joins, Rancher makes one."""
    etcd = ", while the other members of etcd are healthy" if nodes.is_server(node) else ""
    words = (
        f"Let {node.name} join again, which gives it a Machine{etcd}. First let its VMs leave, "
        "evict its Longhorn replicas and wait until their volumes are healthy elsewhere. Then "
        "delete the node on the page Hosts, and install Harvester on it with the release of the "
        "others"
    )
    see = kubectl("get", CAPI_MACHINE, "", LOCAL)
    return typed(words, see, then)
