"""Pods without a node, whose only nodes are cordoned.

A controller that may run on control-plane nodes alone waits without end where the last of them is
cordoned, also for the uncordon that it would do itself. Source:
kubernetes/kubernetes:pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go
(ErrReasonUnschedulable).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads
from virt_admit.model.messages import names
from virt_admit.model.scheduler.node_labels import label_causes
from virt_admit.model.scheduler.node_selectors import parse_node_selector
from virt_admit.model.scheduler.pod_terms import REQUIRED
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import Node, read_node

READS: Final[Reads] = {
    POD: (
        *("spec.nodeSelector", "spec.affinity.nodeAffinity", "spec.tolerations"),
        *WHOLE_CONDITIONS,
    ),
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
    if not is_unplaced(pod) or not _waits_for_cordon(pod) or unlisted(cluster, NODE):
        return None
    if not any(True for _ in pod.at("spec", "tolerations").items()):
        return None
    wanted, closed = _wanted(pod), []
    for node in _nodes(cluster):
        causes = list(label_causes(wanted, node, moment=True))
        if not causes:
            return None
        if causes == _CORDONED:
            closed.append(node.name)
    if not closed:
        return None
    which = "node that may run it" if len(closed) == 1 else "nodes that may run it"
    words = f"the only {which}, {names(closed)}, {'is' if len(closed) == 1 else 'are all'} cordoned"
    remedy = typed(
        f"uncordon {closed[0]}, unless an administrator works on it: pod {pod.name} has no other "
        "node",
        shell("kubectl", "uncordon", argument(closed[0])),
    )
    return CordonedHome(words, remedy)


def open_to(pod: Object, cluster: Cluster) -> Sequence[str]:
    """Return the known nodes that may run a pod by their labels, taints and cordons, by name."""
    wanted = _wanted(pod)
    nodes = (node for node in _nodes(cluster) if not any(label_causes(wanted, node, moment=True)))
    return [node.name for node in nodes]


def _waits_for_cordon(pod: Object) -> bool:
    """Return whether kube-scheduler counts cordoned nodes among those that refuse a pod: their room
    or volumes may be what it lacks."""
    said = pod.condition("PodScheduled")
    words = said["message"].text or _UNSCHEDULABLE
    return said["reason"].text == "Unschedulable" and _UNSCHEDULABLE in words


_UNSCHEDULABLE: Final = "node(s) were unschedulable"


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


@cached
def _nodes(cluster: Cluster) -> Sequence[Node]:
    """Return the nodes by name, with their labels, taints and cordons."""
    return [
        replace(
            read_node(node, moment=False), cordoned=node.at("spec", "unschedulable").boolean is True
        )
        for node in sorted(cluster.known(NODE), key=lambda node: node.name)
    ]
