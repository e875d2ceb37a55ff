"""Pods without a node, whose only nodes are cordoned.

A controller that may run on control-plane nodes alone waits without end where the last of them is
cordoned, also for the uncordon that it would do itself. Source:
kubernetes/kubernetes:pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names
from virt_admit.model.scheduler.node_labels import label_causes
from virt_admit.model.scheduler.node_selectors import parse_node_selector
from virt_admit.model.scheduler.pod_terms import REQUIRED
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import Node, read_node

READS: Final[Reads] = {
    POD: ("spec.nodeSelector", "spec.affinity.nodeAffinity", "spec.tolerations"),
    NODE: ("metadata.labels", "spec.taints", "spec.unschedulable"),
}
_CORDONED: Final = ["cordoned"]


class CordonedHome(NamedTuple):
    """The nodes that a pod waits for."""

    words: str
    """A clause: ``the only node that may run it, N, is cordoned``."""
    remedy: str


def is_unplaced(pod: Object) -> bool:
    """Return whether kube-scheduler says that it finds no node for a pod."""
    placed = pod.condition("PodScheduled")["status"].text
    return placed == "False" and not pod.at("spec", "nodeName").text


def of_pod(pod: Object, cluster: Cluster) -> CordonedHome | None:
    """Return the cordoned nodes that a pod waits for; None: it has a node, some node is open to it
    by its labels and taints, no node is but for a cordon, or that is not known.

    The API server writes tolerations into each pod: where there are none, they were not read
    (kubernetes/kubernetes:plugin/pkg/admission/defaulttolerationseconds/admission.go).
    """
    if not is_unplaced(pod) or unlisted(cluster, NODE):
        return None
    if not any(True for _ in pod.at("spec", "tolerations").items()):
        return None
    wanted = _wanted(pod)
    causes = {
        node.name: list(label_causes(wanted, _node(node), moment=True))
        for node in cluster.known(NODE)
    }
    closed = sorted(name for name, why in causes.items() if why == _CORDONED)
    if not closed or not all(causes.values()):
        return None
    which = "node that may run it" if len(closed) == 1 else "nodes that may run it"
    words = f"the only {which}, {names(closed)}, {'is' if len(closed) == 1 else 'are all'} cordoned"
    remedy = typed(
        f"uncordon {closed[0]}, unless an administrator works on it: pod {pod.name} has no other "
        "node",
        shell("kubectl", "uncordon", argument(closed[0])),
    )
    return CordonedHome(words, remedy)


def _wanted(pod: Object) -> Pod:
    """Return what a pod asks of the labels and taints of its node."""
    spec = pod["spec"]
    required = spec.at("affinity", "nodeAffinity", REQUIRED)
    return Pod(
        namespace=pod.namespace,
        node_selector=spec["nodeSelector"].texts,
        node_affinity=parse_node_selector(required.value) if required.is_map else None,
        tolerations=spec["tolerations"].value,
    )


def _node(node: Object) -> Node:
    cordoned = node.at("spec", "unschedulable").boolean is True
    return replace(read_node(node, moment=False), cordoned=cordoned)
