"""Nodes that go with their Machine, as in a scale-in: no later update concerns them.

The MachineSet chooses Machines beyond its number and deletes them. Cluster API drains their nodes
at once, and makes no successor. In OpenShift the Node is deleted with its Machine. Until then it is
cordoned and has a place of its MachineConfigPool, whose next update waits for its end.

That a VM is asked to leave does not say that it can: a node whose drain does not end stays.
Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machineset/machineset_controller.go#syncReplicas;
openshift/machine-api-operator:pkg/controller/machine/controller.go#Reconcile #deleteNode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.drain.guests import ending_guests
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, MACHINE_DEPLOYMENT, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates import config_pool_updates, cordoners, machine_rollouts
from virt_admit.model.remediation import machine_drain

READS: Final[Reads] = union(
    clock.READS,
    machine_nodes.READS,
    machine_rollouts.READS,
    drain_plan.READS,
    vmis.READS,
    {
        CAPI_MACHINE: ("metadata.deletionTimestamp",),
        MACHINE: ("metadata.deletionTimestamp", "spec.lifecycleHooks", "status.conditions"),
        MACHINE_DEPLOYMENT: ("spec.replicas",),
        VMI: ("status.evacuationNodeName",),
    },
)
_USUAL: Final = timedelta(hours=1)
"""A drain whose VMs move ends by then. One that lasts may not end, and is rehearsed."""


@cached
def nodes(cluster: Cluster) -> frozenset[str]:
    """Return the nodes that a scale-in takes away now: all their VMs are asked to leave, and can.
    Any other one is rehearsed, which says what keeps it or what is not known.
    """
    return frozenset(
        node
        for deployment in cluster.known(MACHINE_DEPLOYMENT)
        for machine in _surplus(deployment, cluster)
        if (node := machine_nodes.node_name(machine, cluster))
        and _empties(node, cluster)
        and drain_plan.node_plan(node, cluster).drainable
    )


def words(cluster: Cluster) -> Iterator[str]:
    """Yield which nodes are not counted, as they go."""
    if leaving := nodes(cluster):
        are, their = ("is", "its") if len(leaving) == 1 else ("are", "their")
        which = names(sorted(leaving), 80)
        yield f"{which} {are} not counted: a scale-in deletes {their} Machine{'s' * (are == 'are')}"


def staying(every: Sequence[Object], cluster: Cluster) -> Sequence[Object]:
    """Return the nodes without those that go with their Machine of OpenShift."""
    gone = of_openshift(cluster)
    return [
        node for node in every if node.name not in gone or config_pool_updates.is_under_way(node)
    ]


@cached
def of_openshift(cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes that go with their Machine of OpenShift, with its name: its deletion began
    an hour ago at most, all VMs are asked to leave and can, and nothing keeps the drain or its end.
    """
    return {
        node: name
        for node, name in _in_deletion(cluster).items()
        if _empties(node, cluster) and drain_plan.node_plan(node, cluster).drainable
    }


@cached
def _in_deletion(cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes of Machines of OpenShift whose deletion waits for their VMs and pods alone,
    with the names of these.
    """
    found = {}
    for machine in cluster.known(MACHINE):
        age = clock.since(machine.metadata["deletionTimestamp"].text, cluster)
        node = machine_nodes.node_name(machine, cluster)
        hooks = machine_drain.holding_hooks(machine) or machine_drain.terminating_hooks(machine)
        if node and age is not None and age < _USUAL and not hooks:
            found[node] = machine.full_name
    return found


def unread(node: Object, cluster: Cluster) -> str:
    """Return what could not be read, so that a cordoned node of OpenShift may go with its Machine;
    empty: all was read, or it does not go.
    """
    if not node.at("spec", "unschedulable").boolean:
        return ""
    if machine_nodes.OWNER in node.annotations and (what := unlisted(cluster, MACHINE)):
        return what
    if node.name not in _in_deletion(cluster):
        return ""
    if what := vmis.unread(cluster):
        return what
    if not _empties(node.name, cluster):
        return ""
    plan = drain_plan.node_plan(node.name, cluster)
    unknown = tuple(row.vmi.full_name for row in plan.undecided)
    unseen = plan.doubts or plan.unseen or (*unknown, "its drain")
    return names(unseen) if plan.drainable is None else ""


def with_cause(obstacle: Obstacle, away: Sequence[Object], cluster: Cluster) -> Obstacle:
    """Return an obstacle with what ends the drain of a node whose Machine is being deleted, if a VM
    keeps that from its end: a wait for the node would not help.
    """
    for node in away:
        machine = cordoners.machine_in_deletion(node, cluster)
        plan = drain_plan.node_plan(node.name, cluster) if machine else None
        kept = next(_kept(plan, cluster), None) if plan is not None else None
        if plan is None or kept is None or plan.pods.blockers:  # those are named already
            continue
        keep = (
            f"Do not uncordon {node.name} by hand: the deletion of Machine {machine} drains it, "
            f"and waits for VM {kept.vmi.full_name} ({kept.reason})"
        )
        return replace(obstacle, remedy=f"{keep}. {capital(kept.remedy)}".rstrip(". "))
    return obstacle


def _kept(plan: NodePlan, cluster: Cluster) -> Iterator[Forecast]:
    """Yield the VMs that keep a drain from its end, or end late."""
    yield from plan.having(VmOutcome.BLOCKS)
    yield from (
        each for each in plan.forecasts if ending_guests.late(each.vmi, cluster) is not None
    )


def words_of_openshift(cluster: Cluster) -> Iterator[str]:
    """Yield which nodes of OpenShift are not counted, as they go."""
    for node, machine in sorted(of_openshift(cluster).items()):
        yield (
            f"{node} is not counted: it goes with Machine {machine}, which is being deleted, and "
            "takes a place of its MachineConfigPool until then"
        )


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
