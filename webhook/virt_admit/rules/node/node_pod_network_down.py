"""The agent or the plugin of the pod network does not work on a node that runs VMs.

**Why.** With some plugins no pod starts there. With others, such as Calico, pods start, and the VMs
of the node may be out of reach: a migration to the node or away from it may fail, because
virt-handler sends the memory over the pod network. A drain of another node ends only if its VMs
find a third one.

So it is, too, if the range of pod addresses of the node is full, in truth or by reservations that
were left. A node whose pods have all of its range is named even if no pod lacks one yet, where the
kubelet admits more pods, so that kube-scheduler goes on choosing it.

**Fix.** Repair the pod that the finding names before another node is drained or rebooted. A pod
that is not ready for less than five minutes is not named: it is updated, or starts again. A plugin
is named if it fails for at least two pods for five minutes, and no newer pod is ready there.
"""

from collections.abc import Iterator

from virt_admit.forecasts.placement import pod_networks, virt_handlers
from virt_admit.forecasts.placement.components import network_plugins
from virt_admit.model.commands import kubectl
from virt_admit.model.evidence import full_ranges
from virt_admit.model.kubernetes import clock, node_health, nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD
from virt_admit.model.messages import advice_of, capital, command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(NODE,),
    reads=union(
        pod_networks.READS,
        node_health.READS,
        {
            NODE: (
                "metadata.annotations.projectcalico.org/IPv4Address",
                "metadata.annotations.projectcalico.org/IPv6Address",
                "metadata.labels",
                "status.addresses",
                "status.conditions",
            ),
            POD: (
                "spec.containers.env",
                "spec.containers.name",
                "spec.containers.resources",
                "status.conditions",
                "status.containerStatuses",
                "status.initContainerStatuses",
            ),
            DAEMON_SET: ("metadata.ownerReferences",),
        },
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "projectcalico/calico:node/pkg/health/health.go#checkBIRDReady",
        "kubernetes/kubernetes:pkg/controller/nodelifecycle/node_lifecycle_controller.go",
        "https://github.com/projectcalico/calico/issues/1628",
        "https://github.com/projectcalico/calico/issues/5712",
        "https://github.com/k3s-io/k3s/issues/5885",
    ),
)
def check(node: Object, context: Context) -> Findings:
    cluster = context.cluster
    if node_health.silence(node, cluster):
        return  # of a node that does not report, this says nothing
    if nodes.SCHEDULABLE not in node.labels and virt_handlers.pod(cluster, node.name) is None:
        return  # KubeVirt labels a new node once virt-handler has started there
    path, remedy = node.metadata["name"].path, pod_networks.remedy(cluster, node.name)
    texts = list(_texts(node, remedy, cluster))
    if texts:
        command = command_of(remedy) or kubectl("describe", NODE, node.name)
        yield Finding(path, check.first_that_fits(path, *texts), value="network", command=command)


def _texts(node: Object, remedy: str, cluster: Cluster) -> Iterator[str]:
    """Yield the message, the longest form first; nothing where the network works, or that is not
    known."""
    agent, unavailable = pod_networks.agent(cluster, node.name), _unavailable(node, cluster)
    plugin = network_plugins.failing(cluster, node.name)
    if plugin is not None and (agent is None or pod_networks.is_router(agent)):
        words = f"no VM starts or arrives here: {plugin.words(cluster)}"
        if agent is not None:
            yield f"{words}, and {pod_networks.words(agent, cluster)}. {advice_of(remedy)}"
        yield f"{words}. {advice_of(remedy)}"
        yield f"no VM starts or arrives here: {plugin.brief}. {advice_of(remedy)}"
        return
    if agent is None:
        if (full := full_ranges.used_up(node.name, cluster)) is not None:
            yield f"no VM starts or arrives here: {full.reason}. {advice_of(remedy)}"
            yield f"no VM starts or arrives here: {full.reason}"
            return
        if unavailable:
            yield (
                f"{capital(unavailable)}, so no new pod starts on this node. Repair its pod "
                "network."
            )
        return
    works_in_part = pod_networks.is_router(agent) and not unavailable
    effect = (
        "VMs may not migrate to this node or away from it"
        if works_in_part
        else "no VM starts or arrives here"
    )
    why = pod_networks.words(agent, cluster)
    if unavailable:
        yield f"{effect}: {why}, and {unavailable}. {advice_of(remedy)}"
    yield f"{effect}: {why}. {advice_of(remedy)}"
    yield f"{effect}: pod {agent.full_name} is not ready. {advice_of(remedy)}"


def _unavailable(node: Object, cluster: Cluster) -> str:
    """Return what the condition NetworkUnavailable says if it is True for longer than a start
    takes; empty: it is not."""
    condition = node.condition("NetworkUnavailable")
    age = clock.since(condition["lastTransitionTime"].text, cluster)
    if condition["status"].text != "True" or age is None or age < pod_networks.PATIENCE:
        return ""
    reason = condition["reason"].text
    return (
        f"condition NetworkUnavailable is True{f' ({reason})' if reason else ''} for "
        f"{clock.duration(age)}"
    )
