"""Machines of Harvester without a Node: one that was deleted, or never came. The planner of Rancher
waits for the plans of the first, which no host applies any more, so that it changes no other node
of their role.

A promotion to the control plane waits for it too, and leaves its node cordoned. Harvester 1.6 and
later refuses to start an upgrade while there are more Machines than nodes. Sources:
rancher/rancher:pkg/capr/planner/planner.go#reconcile #isUnavailable;
kubernetes-sigs/cluster-api:api/core/v1beta1/condition_consts.go#NodeNotFoundReason;
harvester/harvester:pkg/controller/master/node/promote_controller.go,
:pkg/webhook/resources/upgrade/validator.go#isNodeMachineMatching; harvester/harvester#5158, #5258;
harvester/harvester#6095 (a Machine of a host that never joined is to be deleted).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, typed
from virt_admit.model.evidence.writes.fleet_objects import LOCAL
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import harvester_upgrades, update_orders
from virt_admit.model.node_updates.rancher import planner_waits
from virt_admit.model.node_updates.update_orders import StandingOrder
from virt_admit.model.remediation import machine_drain

HEALTHY: Final = "NodeHealthy"
PROMOTION: Final = "harvesterhci.io/promote-status"
_RUNNING: Final = "running"
_NOT_FOUND: Final = "NodeNotFound"
_PATIENCE: Final = timedelta(minutes=10)
"""A node that registers again, or whose Machine is about to be deleted, needs less."""

READS: Final[Reads] = union(
    clock.READS,
    harvester_upgrades.READS,
    machine_nodes.READS,
    planner_waits.READS,
    {
        CAPI_MACHINE: (*WHOLE_CONDITIONS, "status.nodeRef.name", "status.v1beta2.conditions"),
        NODE: (
            f"metadata.annotations.{PROMOTION}",
            f"metadata.labels.{nodes.HARVESTER}",
            "spec.unschedulable",
        ),
    },
)


class NodelessMachine(NamedTuple):
    """A Machine for whose plan Rancher waits although its Node does not exist."""

    machine: Object
    node: str
    words: str
    """Why nothing goes on, as a main clause."""

    @property
    def remedy(self) -> str:
        """What ends it: a host that was removed needs no Machine."""
        words = (
            f"If the host of {self.node} was removed on purpose and stays off, delete its Machine, "
            "after which Rancher goes on with the other nodes"
        )
        back = (
            f"or, if that host is to stay, restart its rke2-server or rke2-agent, which registers "
            f"{self.node} again"
        )
        return typed(words, about("delete", self.machine, CAPI_MACHINE), back)


class LeftMachine(NamedTuple):
    """A Machine of a host that never joined, while each node has another Machine."""

    machine: Object
    why: str
    """What shows it, as a main clause about the Machine."""

    @property
    def remedy(self) -> str:
        """What ends it: nothing else removes such a Machine."""
        way = "delete it, unless a host is still to join as this Machine"
        return typed(way, about("delete", self.machine, CAPI_MACHINE))


def left_over(machine: Object, cluster: Cluster) -> LeftMachine | None:
    """Return that a Machine has no host; None: it may have one, or not all that counts is known.

    Rancher makes it when a host registers. A node of a host that joins has no other Machine.
    """
    has_node = machine.at("status", "nodeRef", "name").text or machine.at("spec", "providerID").text
    if (
        has_node
        or machine.deleted
        or machine.namespace != LOCAL
        or not nodes.has_harvester(cluster)
        or unlisted(cluster, NODE)
        or unlisted(cluster, CAPI_MACHINE)
        or not clock.has_lasted(machine.created, _JOINED, cluster)
    ):
        return None
    machines = cluster.known(CAPI_MACHINE, LOCAL)
    others = {each.name for each in machines if each.name != machine.name and not each.deleted}
    owners = [each.annotations.get(machine_nodes.CAPI_OWNER, "") for each in cluster.known(NODE)]
    if not owners or not others.issuperset(owners) or len(set(owners)) < len(owners):
        return None
    every = f"each of the {len(owners)} nodes has" if len(owners) > 1 else "the only node has"
    why = f"it has neither nodeRef nor providerID, and {every} another Machine"
    return LeftMachine(machine, why)


_JOINED: Final = timedelta(hours=1)
"""A host that is installed has joined by then."""


def refusals(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the Machines with which no upgrade of Harvester ends, while none is under way."""
    if next(harvester_upgrades.upgrades(cluster), None) is None:
        for each in known(cluster):
            reason = f"no upgrade of Harvester goes on beside it: {each.words}"
            brief = f"Rancher waits for the plan of this Machine, but {each.node} does not exist"
            yield StandingOrder(each.machine, reason, each.remedy, True, brief)


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrade of Harvester that waits for such a Machine."""
    for order, _ in harvester_upgrades.going(cluster):
        for each in known(cluster):
            title = update_orders.title(order)
            brief = f"Machine {each.machine.name} has no Node, and Rancher waits for its plan"
            yield StandingOrder(
                order, f"{title} does not go on: {each.words}", each.remedy, True, brief
            )


@cached
def known(cluster: Cluster) -> Sequence[NodelessMachine]:
    """Return the Machines whose Node certainly does not exist, for whose plan Rancher waits."""
    return tuple(_known(cluster))


def _known(cluster: Cluster) -> Iterator[NodelessMachine]:
    if unlisted(cluster, NODE) or not nodes.has_harvester(cluster):
        return
    promoted = _promoted(cluster)
    for machine in cluster.known(CAPI_MACHINE, LOCAL):
        healthy = machine_drain.condition(machine, HEALTHY)
        node = machine.at("status", "nodeRef", "name").text or ""
        gone = healthy["status"].text == "False" and healthy["reason"].text == _NOT_FOUND
        since = healthy["lastTransitionTime"].text
        if (
            not (gone and node)
            or machine.deleted
            or find(cluster, NODE, "", node) is not None
            or not clock.has_lasted(since, _PATIENCE, cluster)
        ):
            continue
        wait = planner_waits.of_machine(machine, cluster)
        if wait is not None:
            words = (
                f"Machine {machine.full_name} is that of {node}, which does not exist any more "
                f"({HEALTHY} is False{clock.lasting(since, cluster)}: {_NOT_FOUND}), and Rancher "
                f"({wait.by}) still waits for it: {wait.words}. So it goes on with no other node "
                f"of its role{promoted}"
            )
            yield NodelessMachine(machine, node, words)


def _promoted(cluster: Cluster) -> str:
    """Return which nodes wait for their promotion meanwhile; empty: none."""
    waiting = [
        node
        for node in sorted(cluster.known(NODE), key=lambda each: each.name)
        if node.annotations.get(PROMOTION) == _RUNNING
    ]
    if not waiting:
        return ""
    closed = all(each.at("spec", "unschedulable").boolean is True for each in waiting)
    stays = " and stays cordoned" if closed else ""
    return f": {names(each.name for each in waiting)} is not promoted{stays}"
