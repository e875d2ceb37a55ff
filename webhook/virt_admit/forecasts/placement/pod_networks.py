"""Nodes whose agent of the pod network does not work: kube-scheduler knows nothing of it.

Some plugins ask a server in this agent's pod for each new pod, so that no pod starts without it.
Others start pods without theirs, but nothing may reach them: calico-node is not ready if it has no
BGP session with any node, or if Felix, which programs the routes of new pods, is not; flannel and
kube-router write the routes to the other nodes. Sources:
k8snetworkplumbingwg/multus-cni:cmd/multus-daemon/main.go;
cilium/cilium:plugins/cilium-cni/cmd/cmd.go#Add;
ovn-kubernetes/ovn-kubernetes:go-controller/pkg/cni/cniserver.go;
kubeovn/kube-ovn:pkg/daemon/handler.go, :dist/images/install.sh (ovs-ovn runs Open vSwitch and
ovn-controller, for which the other one waits); antrea-io/antrea:pkg/agent/cniserver/server.go;
aws/amazon-vpc-cni-k8s:cmd/routed-eni-cni-plugin/cni.go;
projectcalico/calico:node/pkg/health/health.go#checkBIRDReady; issues projectcalico/calico#1628.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, network_plugins, node_pods
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.evidence import full_ranges
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, each, entry
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    pod_starts.READS,
    network_plugins.READS,
    broken_pods.CHANGED_READS,
    node_health.READS,
    {POD: ("metadata.labels", "spec.containers.image", "status.containerStatuses", *CONDITIONS)},
)

BROKEN: Final = "the pod network on "
"""How each reason begins."""
_DAEMONS: Final = frozenset(
    (
        ("k8s-app", "cilium"),
        ("app", "ovnkube-node"),
        ("app", "kube-ovn-cni"),
        ("component", "antrea-agent"),
        ("k8s-app", "aws-node"),
    )
)
"""The labels of these pods in the manifests and charts of the projects and of OpenShift."""
_ROUTERS: Final = frozenset(
    (
        ("k8s-app", "calico-node"),
        ("k8s-app", "canal"),
        ("app", "flannel"),
        ("k8s-app", "kube-router"),
    )
)
"""The same of agents without which pods start, but may be out of reach. Canal is Calico with the
routes of flannel."""
_MULTUS: Final = ("app", "multus")
_OVS: Final = "ovs-ovn"
"""The DaemonSet of Kube-OVN with Open vSwitch. Its label says no more than ``ovs``."""
PATIENCE: Final = network_plugins.PATIENCE


def problem(cluster: Cluster, node: str) -> str:
    """Return why no pod starts on a node; empty: the pod network works there,
    or that is not known.
    """
    pod, plugin = agent(cluster, node), network_plugins.failing(cluster, node)
    why = words(pod, cluster) if pod is not None and not is_router(pod) else ""
    why = why or (plugin.words(cluster).replace("; ", ", ") if plugin is not None else "")
    if not why and (full := full_ranges.used_up(node, cluster)) is not None:
        return f"{BROKEN}{node} takes no further pod, as {full.reason}"
    return f"{BROKEN}{node} does not work, as {why}" if why else ""


def doubt(cluster: Cluster, node: str) -> str:
    """Return why pods of a node, and its VMs that arrive there, may be out of reach; empty: nothing
    says so."""
    pod = agent(cluster, node)
    if pod is not None and is_router(pod):
        return f"{BROKEN}{node} may not work, as {words(pod, cluster)}"
    return ""


def doubtful(cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes whose pods may be out of reach, each with the reason."""
    found = ((node, doubt(cluster, node)) for node in cluster.cached(_failing))
    return {node: reason for node, reason in found if reason}


def remedy(cluster: Cluster, node: str) -> str:
    """Return what repairs the pod network of a node, with a command; empty: it works, or that is
    not known."""
    pod, plugin = agent(cluster, node), network_plugins.failing(cluster, node)
    broken = broken_pods.of_pod(pod, cluster) if pod is not None else None
    if plugin is not None and plugin.full is not None:
        return plugin.remedy(cluster)  # of which the agent may have no address either
    if broken is not None:
        return network_plugins.repair(broken_pods.changed(broken, cluster), cluster)
    full = full_ranges.used_up(node, cluster) if plugin is None else None
    return full.remedy if full is not None else plugin.remedy(cluster) if plugin is not None else ""


def agent(cluster: Cluster, node: str) -> Object | None:
    """Return the agent of the pod network on a node that does not work; None: it does, or is not
    known."""
    return entry(cluster, _failing, node)


def is_router(pod: Object) -> bool:
    """Return whether pods start without this agent."""
    return not _ROUTERS.isdisjoint(pod.labels.items())


def words(pod: Object, cluster: Cluster) -> str:
    """Return ``pod NAMESPACE/NAME (DaemonSet NAME) is not ready for 15 h: REASON``."""
    broken = broken_pods.of_pod(pod, cluster)
    if broken is not None and broken.why:
        return broken_pods.changed(broken, cluster).full_words.replace("; ", ", ")  # one cause
    why = pod_starts.words(pod, cluster).replace("; ", ", ")
    return (
        f"pod {pod.full_name} (DaemonSet {node_pods.daemon(pod)}) is not "
        f"ready{f': {why}' if why else ''}"
    )


def _failing(cluster: Cluster) -> Mapping[str, Object]:
    """Return the agent that does not work, by node: of several the one without which no pod
    starts."""
    pods = sorted(filter(None, each(cluster, POD, _daemon)), key=is_router, reverse=True)
    return {pod.at("spec", "nodeName").text or "": pod for pod in pods if _has_failed(pod, cluster)}


def _daemon(pod: Object) -> Object | None:
    """Return the pod if it is such a daemon, owned by a DaemonSet, and has not ended."""
    runs = pod.owned_by("DaemonSet") and not pod.deleted and not pod.ended
    labels = pod.labels.items()
    known = not (_DAEMONS | _ROUTERS).isdisjoint(labels)
    needed = known or (_MULTUS in labels and not is_thin(pod))
    return pod if runs and (needed or node_pods.daemon(pod) == _OVS) else None


def is_thin(pod: Object) -> bool:
    """Return whether a pod is of the multus without a server, whose plugin goes on without it."""
    if _MULTUS not in pod.labels.items() or pod.namespace == "openshift-multus":
        return False
    images = (container["image"].text or "" for container in pod.at("spec", "containers").items())
    return not any("thick" in image for image in images)


def _has_failed(pod: Object, cluster: Cluster) -> bool:
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    lasts = node_health.pod_unready_for(pod, node, cluster)
    unready = pod.condition("Ready")["status"].text == "False"
    return unready and lasts is not None and lasts >= PATIENCE
