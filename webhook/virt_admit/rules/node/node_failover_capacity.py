"""The loss of this node leaves VMs without room on the others.

**Why.** After the loss of a node its VMs start on the others. Those without room stay Pending until
an administrator makes room. The rule names the node with the largest shortage: what its VMs
request, and what the other nodes with KubeVirt have free together, or in pieces as large as its
VMs. Cordoned nodes and nodes that are not Ready count as room, because that may be over when a node
is lost.

**Fix.** Add a node, make VMs smaller, or stop VMs that are not needed.
``virt-admit outage --worst 1`` names the VMs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from virt_admit.forecasts.outage import failover, failover_nodes
from virt_admit.forecasts.outage.failover_nodes import WorstLoss
from virt_admit.forecasts.outage.tolerance import ONE_NODE, Tolerance
from virt_admit.forecasts.placement.absent import owed_nodes
from virt_admit.forecasts.placement.components import node_initializers
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubevirt.launcher import without_kvm
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.scheduler.resources import PODS, show
from virt_admit.rule import Action, Context, Finding, Findings, Object, choice, param, rule, union


@dataclass(frozen=True)
class Params:
    tolerate: Tolerance = param(  # noqa: RUF009 - both are frozen
        ONE_NODE, "what the cluster must survive; this rule is about nodes, 0 is off"
    )
    count: str = choice(
        "vms",
        ("vms", "everything"),
        "what needs room after a loss: VMs, or pods of controllers too",
    )


@rule(
    kinds=(NODE,),
    reads=union(
        failover.READS,
        node_initializers.READS,
        owed_nodes.READS,
        removed_operators.READS,
        cordoners.READS,
        without_kvm.READS,
    ),
    action=Action.WARN,
    event="NoFailover",
    at_admission=False,
    params=Params(),
    sources=("kubernetes/kubernetes:pkg/scheduler/framework/plugins/noderesources/fit.go",),
)
def check(node: Object, context: Context[Params]) -> Findings:
    params, cluster = context.params, context.cluster
    if params.tolerate.nodes < 1 or removed_operators.kubevirt(cluster):  # then nothing starts a VM
        return
    tolerance = Tolerance(nodes=params.tolerate.nodes)
    everything = params.count == "everything"
    found = failover_nodes.worst_now(tolerance, cluster, everything=everything)
    if found is None or min(found.loss.nodes) != node.name:
        return
    path = node.metadata["name"].path
    yield Finding(
        path,
        check.first_that_fits(
            path,
            *(
                f"{_problem(found)}. {remedy}"
                for remedy in (
                    *_virtualize(found, cluster),
                    *_open(cluster),
                    *_initialize(cluster),
                    *_owed(cluster),
                    *_REMEDIES,
                )
            ),
        ),
        value=node.name,
    )


def _virtualize(worst: WorstLoss, cluster: Cluster) -> Iterator[str]:
    """Yield the remedy while others have no KVM: smaller VMs need it as well."""
    if worst.resource == without_kvm.KVM and (nodes := without_kvm.found(cluster)):
        yield f"{capital(without_kvm.words(nodes))}. {capital(without_kvm.way(nodes, cluster))}."
        yield f"{capital(without_kvm.words(nodes))}."


def _open(cluster: Cluster) -> Iterator[str]:
    """Yield the remedy while a forgotten mark of an autoscaler keeps a node closed, whose room
    does not count.
    """
    for node in cluster.known(NODE):
        left = cordoners.of_node(node, cluster) if SCHEDULABLE in node.labels else None
        if left is not None and left.mark.startswith(_MARK) and left.remedy:
            first = f"First open node {node.name}, {left.state} (node-cordon-stays)"
            yield f"{first}, else add a node or stop VMs."
            return


_MARK = f"taint {node_removals.AUTOSCALER}"


def _initialize(cluster: Cluster) -> Iterator[str]:
    """Yield the remedy while a node that has joined takes no pods:
    another one would wait as well.
    """
    if waiting := node_initializers.first(cluster):
        repair = (
            f"Repair {waiting.who}, which has not initialized node {waiting.node.name} "
            "(node-uninitialized)"
        )
        yield f"{repair}, make VMs smaller or stop some; see virt-admit outage --worst 1."


def _owed(cluster: Cluster) -> Iterator[str]:
    """Yield the remedy while a node that the cluster has, or is to get, does not take VMs."""
    if first := owed_nodes.first_step(cluster):
        yield f"{first}, else stop VMs; see virt-admit outage --worst 1."


_REMEDIES = (
    "Add a node, make VMs smaller or stop some; see virt-admit outage --worst 1.",
    "Add a node or stop VMs.",
)


def _problem(found: WorstLoss) -> str:
    where = "this node" if len(found.loss.nodes) == 1 else f"{found.loss}"
    if found.size:
        size = show(found.resource, found.size)
        return (
            f"the loss of {where} leaves VMs without room: {found.vms} of its VMs need {size} of "
            f"{found.resource} each or more, and the other nodes have {found.places} such places"
        )
    needed, free = show(found.resource, found.needed), show(found.resource, found.free)
    if found.resource == PODS:
        return (
            f"the loss of {where} leaves VMs without room: they are {needed} pods, and the limits "
            f"of pods of the other nodes leave {free}"
        )
    return (
        f"the loss of {where} leaves VMs without room: they need {needed} of {found.resource} on "
        f"the other nodes, which have {free} free"
    )
