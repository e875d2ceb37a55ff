"""A node runs VMs that should start again after its loss, but no health check can remediate it.

**Why.** Kubernetes does not know whether a node that stops reporting still runs its VMs. Until a
health check or an administrator confirms that it is down, the VMs stay on it and do not start
elsewhere. Some VMs need none: Piraeus' high-availability controller frees those with replicated
LINSTOR volumes, and a MachineHealthCheck of Cluster API replaces the VMs of its tenant cluster. The
controller of a cloud deletes the Node of an instance that is gone, but not of one that hangs.

**Fix.** Create a NodeHealthCheck (which needs the Node Health Check Operator) or MachineHealthCheck
that selects the node, or repair the one that cannot act:
``virt-admit explain`` shows why. One that is paused while some node is cordoned or not Ready, as in
an upgrade of the nodes, is left alone: remove its pause request afterwards.
"""

from datetime import timedelta
from functools import partial
from typing import Final

from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.forecasts.placement.components.linstor import failovers
from virt_admit.forecasts.remediation import coverage, exclusions, harvester_reset, outside_checks
from virt_admit.forecasts.remediation.unwatched import cloud_instances, vm_returns
from virt_admit.model import certificate_requests, machine_nodes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather, keep, unlisted
from virt_admit.model.kubernetes.kinds import (
    FAR_TEMPLATE,
    MDR_TEMPLATE,
    NHC,
    NODE,
    SNR_CONFIG,
    SNR_TEMPLATE,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.reads import CONDITIONS
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.operators import orphaned_nodes
from virt_admit.model.remediation import check_scope
from virt_admit.rule import Action, Context, Finding, Findings, Object, count, cut, rule, union

_AWAY: Final = (
    "spec.taints",
    "spec.unschedulable",
    "status.conditions.lastTransitionTime",
    *CONDITIONS,
)


@rule(
    kinds=(NODE,),
    reads=union(
        clock.READS,
        vmis.READS,
        vmis.OWNER_READS,
        coverage.READS,
        exclusions.RELEASE_READS,
        outside_checks.READS,
        certificate_requests.READS,
        {VMI: ("metadata.name",), VM: ("metadata.name",), NODE: _AWAY},
    ),
    action=Action.WARN,
    effect=True,
    at_admission=False,
    sources=(
        "OpenShift Virtualization, Nodes 10.5, Run strategies and remediation",
        "medik8s/node-healthcheck-operator:README.md",
        "kubevirt/kubevirt:docs/nodes/node-recovery.md",
    ),
)
def check(node: Object, context: Context) -> Findings:
    if certificate_requests.of_node(node.name, context.cluster) is not None:
        return  # it runs: a health check that acted now would fence a node whose guests are well
    if orphaned_nodes.of_node(node.name, context.cluster) is not None:
        return  # it does not come back: node-not-reporting says how it ends
    unread = unlisted(context.cluster, NODE)
    silent = node_phases.unready_since(node) is not None
    if unread and silent and machine_nodes.CAPI_OWNER in node.annotations:
        yield Unseen(unread)  # it may be left over all the same
        return
    covered = coverage.coverage(context.cluster)
    if node.name in covered.nodes or context.cluster.cached(outside_checks.is_single):
        return
    pauses = [each for each in covered.idle if coverage.is_paused(each[1])]
    paused = bool(pauses) and node.name in context.cluster.cached(_paused)
    if (pauses and unread) or (paused and context.cluster.cached(_is_under_way)):
        yield from map(Unseen, filter(None, (unread,)))
        return
    returning, others, unseen = keep(
        context.cluster, (_returning, node.name), partial(_returning, node.name)
    )
    unsure = filter(None, [covered.unsure.get(node.name)])
    doubts = (*covered.unseen, *unsure, *outside_checks.outside(node.name, context.cluster))
    if returning and not doubts:
        other = () if paused else pauses  # checks of other nodes, whose pause does not matter here
        idle = [
            *filter(None, [covered.left_alone.get(node.name)]),
            *(each for each in covered.idle if each not in other),
        ]
        why = cut(f" ({idle[0][0]}: {idle[0][1]}", 240) + ")" if idle else ""
        some = f"{len(returning)} of " if others else ""
        vms = f"{some}{count(len(returning) + others, 'VM')}"
        again = (
            "Remove the pause request once its cause is over."
            if _is_first(idle)
            else "Let it act, or use another."
        )
        remedy = again if why else _first_check(node, context.cluster)
        agent = remediation_agents.missing(node.name, context.cluster)
        repair = agent.remedy if agent is not None and idle and agent.why in idle[0][1] else ""
        path, said = node.metadata["name"].path, f"no health check can act on this node{why}"
        cloud = cloud_instances.is_deleted_with_instance(node.name, context.cluster)
        until = "before the cloud deletes its instance" if cloud else "after its loss"
        said = f"{said}, so {vms} would not restart {until}. "
        ways = filter(None, (advice_of(repair) if repair else "", remedy))
        message = check.first_that_fits(path, *(said + way for way in ways))
        yield Finding(path, message, value=node.name, command=command_of(repair))
    elif returning:
        # Harvester acts by default: only where a node is lost does something rest on that setting
        lost = node_phases.unready_since(node) is not None
        yield from (Unseen(each) for each in doubts if lost or each != harvester_reset.UNREAD)
    elif unseen:
        yield Unseen(unseen)


def _first_check(node: Object, cluster: Cluster) -> str:
    """Return what helps where no check is about a node:
    nothing acts on a NodeHealthCheck without its operator.
    """
    if any(
        cluster.known(kind) for kind in (NHC, SNR_CONFIG, SNR_TEMPLATE, FAR_TEMPLATE, MDR_TEMPLATE)
    ):
        return "Select it in a NodeHealthCheck."
    other = ", or create a MachineHealthCheck" if machine_nodes.OWNER in node.annotations else ""
    return (
        f"Install the Node Health Check Operator and select the node in a NodeHealthCheck{other}."
    )


def _is_first(idle: list[tuple[str, str]]) -> bool:
    """Return whether the check that is named is one that an administrator has paused."""
    return bool(idle) and coverage.is_paused(idle[0][1])


def _paused(cluster: Cluster) -> frozenset[str]:
    """Return the nodes that some paused NodeHealthCheck selects."""
    paused = {
        title for title, reason in coverage.coverage(cluster).idle if coverage.is_paused(reason)
    }
    watches = (
        watch for some in check_scope.watches(cluster, NHC).by_namespace.values() for watch in some
    )
    own = (watch for watch in watches if f"{NHC.kind} {watch.check.obj.name}" in paused)
    return frozenset(node.name for watch in own for node in watch.selection.objects)


def _is_under_way(cluster: Cluster) -> bool:
    """Return whether some node was cordoned, or fell silent, of late:
    what a health check is paused for.
    """
    away = filter(node_phases.is_away, cluster.known(NODE))
    begun = (node_phases.cordoned_since(node) or node_phases.unready_since(node) for node in away)
    now = clock.now(cluster)
    return any(since is None or now is None or now - since < _OF_LATE for since in begun)


_OF_LATE: Final = timedelta(days=1)


def _returning(node: str, cluster: Cluster) -> tuple[list[str], int, str]:
    """Return the VMs that start again after a loss of the node, if a health check frees them, the
    number of those that something else frees, and what could not be read.
    """
    found, unseen = gather(vmis.on_node(cluster, node))
    returning, others = [], 0
    for vmi in found:
        try:
            if vmis.comes_back(vmi, cluster, lost=True).comes:
                other = vm_returns.of_vmi(vmi, cluster)
                if other is None:
                    returning.append(vmi.full_name)
                elif other.unsure != failovers.MIGRATES:  # which passes
                    others += not other.unsure
                    unseen = unseen or other.unsure
        except Unseen as blind:
            unseen = unseen or blind.what
    return returning, others, unseen
