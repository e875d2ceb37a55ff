"""Nodes that could take VMs once they are Ready, and the root of it: with no pod network, all other
pods of the node are victims.

Sources: kubernetes/kubernetes:pkg/kubelet/kubelet.go#updateRuntimeUp (what the kubelet says without
a pod network), :pkg/controller/nodeipam/ipam/range_allocator.go#AllocateOrOccupyCIDR #ReleaseCIDR,
:pkg/controller/util/node/controller_utils.go#RecordNodeStatusChange (the event is not a warning).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import pod_networks
from virt_admit.forecasts.placement.components import broken_pods, network_plugins, node_pods
from virt_admit.forecasts.placement.components.driver_daemons import HANDLER
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = union(
    pod_networks.READS,
    {
        NODE: ("metadata.labels", "spec.podCIDR"),
        POD: ("spec.hostNetwork", "spec.containers.args", "spec.containers.command"),
    },
)
PATIENCE: Final = timedelta(minutes=10)
"""A node that boots or joins is Ready by then."""
_RECENT: Final = timedelta(hours=1)
"""The controller repeats the event as long as no range is free."""
_SAID: Final = 160


class UnreadyNode(NamedTuple):
    """A node whose condition Ready is False for longer than a start takes."""

    name: str
    since: str
    """`` for 5 h``"""
    root: str
    """What is to be repaired, as a clause."""
    remedy: str
    """With a command, as a clause."""
    for_vms: bool
    """Whether it has run VMs, or a pod of virt-handler belongs there."""
    has_network: bool = True
    every_new_one: bool = False
    """Whether another new node would not become Ready either."""

    @property
    def is_not_ready(self) -> str:
        """Return ``is not Ready for 5 h: ROOT``."""
        return f"is not Ready{self.since}: {self.root}"


@cached
def known(cluster: Cluster) -> Mapping[str, UnreadyNode]:
    """Return these nodes by name. One that does not report is not among them."""
    every = sorted(cluster.known(NODE), key=lambda node: node.name)
    found = (of_node(node, cluster) for node in every)
    return {each.name: each for each in found if each is not None}


def named(name: str, cluster: Cluster) -> UnreadyNode | None:
    """Return the same of the node with this name."""
    return entry(cluster, known, name)


def of_node(node: Object, cluster: Cluster) -> UnreadyNode | None:
    """Return the root of it that a node is not Ready; None: it is, or has not been for long."""
    ready = node.condition("Ready")
    if ready["status"].text != "False" or node_health.silence(node, cluster):
        return None
    age = clock.since(ready["lastTransitionTime"].text, cluster)
    if age is None or age < PATIENCE:
        return None
    said = ready["message"].words
    found = UnreadyNode(
        node.name,
        clock.lasts(age),
        cut_middle(said, _SAID) or "it does not say why",
        typed(
            node_health.RESTART_RUNTIME if node_health.cannot_end_pods(node) else _REPAIR,
            kubectl("describe", NODE, node.name),
        ),
        SCHEDULABLE in node.labels or _has_handler(node, cluster),
    )
    if not said.startswith(_NO_NETWORK):
        return found
    root, remedy, every_new_one = _network_root(node, said, cluster)
    return found._replace(root=root, remedy=remedy, has_network=False, every_new_one=every_new_one)


def _has_handler(node: Object, cluster: Cluster) -> bool:
    there = node_pods.of_node(node.name, cluster)
    return any(pod.labels.get("kubevirt.io") == HANDLER for pod in there)


def _network_root(node: Object, said: str, cluster: Cluster) -> tuple[str, str, bool]:
    """Return why a node has no pod network, the remedy, and whether another new node would have
    none either."""
    agent = _agent(node, cluster)
    why = agent.full_words.replace("; ", ", ") if agent is not None else ""
    if ranges := _no_range(node, why, cluster):
        return ranges, _FREE_A_RANGE, True
    if agent is None:
        root = f"its pod network is not up ({cut_middle(said.rpartition('message:')[2], _SAID)})"
        remedy = typed("repair the pod network there", kubectl("describe", NODE, node.name))
        return root, remedy, False
    repair = network_plugins.repair(broken_pods.changed(agent, cluster), cluster)
    return f"its pod network is not up, as {why}", repair, False


_NO_NETWORK: Final = "container runtime network not ready"
_REPAIR: Final = "repair what its condition Ready names"


def _agent(node: Object, cluster: Cluster) -> broken_pods.BrokenPod | None:
    """Return the pod that is to set the pod network of a node up, if it is not ready; None: it is,
    or none is known. Others that need no pod network fail for their own reasons."""
    agent = pod_networks.agent(cluster, node.name)
    if agent is not None and (found := broken_pods.of_pod(agent, cluster)) is not None:
        return found
    there = node_pods.of_node(node.name, cluster)
    own = (each for each in there if each.at("spec", "hostNetwork").boolean)
    return broken_pods.first((each for each in own if _is_of_network(each, cluster)), cluster)


def _is_of_network(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod installs a network plugin, or what is said of it names one."""
    broken = broken_pods.of_pod(pod, cluster)
    said = broken.full_words.lower() if broken is not None else ""
    return node_pods.is_of_network(pod) or "cni" in said or "cidr" in said


# --- ranges of pod addresses ----------------------------------------------------------------------

_FREE_A_RANGE: Final = typed(
    "enlarge --cluster-cidr of kube-controller-manager and the range of the pod network, or remove "
    "a node that is not needed, which frees its range",
    "kubectl get nodes -o custom-columns=NODE:.metadata.name,RANGE:.spec.podCIDR",
)


def _no_range(node: Object, why: str, cluster: Cluster) -> str:
    """Return that no range of pod addresses is left for a node; empty: it has one, or its pod
    network may not need one.

    ``why``: what its agent says, which names the range if that is what it lacks.
    """
    has = sorted(each.name for each in cluster.known(NODE) if each.at("spec", "podCIDR").text)
    now = clock.now(cluster)
    said = [
        each
        for each in events.known(NODE.kind, "CIDRNotAvailable", cluster)
        if each.at("involvedObject", "name").text == node.name
        and ((at := events.time_of(each)) is None or now is None or now - at < _RECENT)
    ]
    if not said or not has or node.name in has or (why and "cidr" not in why.lower()):
        return ""
    times = max(each["count"].integer or 1 for each in said)
    all_of_them = _ranges(len(has), cluster) or "the ranges are in use"
    return (
        f"it has no spec.podCIDR, as no range of pod addresses is left (Event CIDRNotAvailable, "
        f"{times}x): {all_of_them} by {names(has, 60)}"
    )


def _ranges(used: int, cluster: Cluster) -> str:
    """Return ``all 4 ranges of /24 in --cluster-cidr 10.244.0.0/22 are in use``; empty: the
    arguments of kube-controller-manager are not known, or do not explain it."""
    for pod in cluster.known(POD, "kube-system"):
        if pod.labels.get("component") != "kube-controller-manager":
            continue
        words = (
            each.text or ""
            for container in pod.at("spec", "containers").items()
            for field in ("command", "args")
            for each in container[field].items()
        )
        flags = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
        try:
            whole = ipaddress.IPv4Network(flags.get(_RANGE, "").partition(",")[0])
            size = int(flags.get(f"{_SIZE}-ipv4") or flags.get(_SIZE) or "24")
        except ValueError:
            return ""
        if 0 <= size - whole.prefixlen <= 16 and 2 ** (size - whole.prefixlen) <= used:
            total = 2 ** (size - whole.prefixlen)
            return f"all {total} ranges of /{size} in {_RANGE} {whole} are in use"
    return ""


_RANGE: Final = "--cluster-cidr"
_SIZE: Final = "--node-cidr-mask-size"
