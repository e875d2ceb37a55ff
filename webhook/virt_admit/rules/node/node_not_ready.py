"""A node for VMs reports, but is not Ready for more than ten minutes.

**Why.** No VM starts there or arrives there, and the room that the node was added for is missing.
Most pods of a node without a pod network only wait for it, virt-handler among them, so the finding
names the root: the pod that sets the network up, or that no range of pod addresses is left for the
node, of which another new node would get none either.

**Fix.** Repair what the finding names. Where the container runtime does not answer, and where the
agent of the pod network fails on a node that has run VMs, another rule says so. A node in
maintenance, or whose Machine has been in deletion for less than 4 hours, is left to what has it.
"""

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement import pod_networks
from virt_admit.forecasts.placement.absent import unready_nodes
from virt_admit.model.kubernetes import clock, node_health, nodes
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(NODE,),
    reads=union(
        unready_nodes.READS,
        cordoners.READS,
        {
            NODE: ("metadata.labels", "status.conditions"),
            POD: (
                "spec.containers.name",
                "spec.containers.resources",
                "status.conditions",
                "status.containerStatuses",
                "status.initContainerStatuses",
            ),
        },
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/kubelet/kubelet.go#updateRuntimeUp",
        "kubernetes/kubernetes:pkg/controller/nodeipam/ipam/range_allocator.go",
        "https://github.com/kubernetes/kubernetes/issues/85866",
    ),
)
def check(node: Object, context: Context) -> Findings:
    cluster = context.cluster
    found = unready_nodes.of_node(node, cluster)
    if found is None or not found.for_vms or node_health.cannot_end_pods(node):
        return
    cordon = cordoners.of_node(node, cluster)
    if cordon is None and node.at("spec", "unschedulable").boolean:
        unread = [each for kind in cordoners.READS for each in more_may_exist(cluster, kind)]
        if unread:  # what has cordoned it may be among them
            yield unread[0]
            return
    if cordon is not None and _goes_on(cordon, node, cluster):
        return
    if nodes.SCHEDULABLE in node.labels and not found.has_network and not found.every_new_one:
        unread = list(more_may_exist(cluster, POD))
        if unread or pod_networks.remedy(cluster, node.name):
            yield from unread
            return
    path = node.metadata["name"].path
    remedy = cordoners.stuck_removal(node, cluster) or found.remedy
    why = f"this node {found.is_not_ready}. {advice_of(remedy)}"
    new = " Another new node would not become Ready either." * found.every_new_one
    yield Finding(
        path,
        check.first_that_fits(path, f"{why}{new}", why),
        value=node.name,
        command=command_of(remedy),
    )


def _goes_on(cordon: Cordon, node: Object, cluster: Cluster) -> bool:
    """Return whether what has cordoned the node, or removes it, goes on: a maintenance that waits
    for nothing lasts as long as its administrator wants.
    """
    if cordon.failed or cordon.ends is False:
        return not cordon.failed and not cordon.waits
    if cordon.state:
        return True
    if cordoners.machine_in_deletion(node, cluster):
        return not cordoners.stuck_removal(node, cluster)
    age = clock.since(node.condition("Ready")["lastTransitionTime"].text, cluster)
    return age is not None and age < _UPDATE


_UPDATE: Final = timedelta(hours=1)
"""The update and reboot of a node have ended by then."""
