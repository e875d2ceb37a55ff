"""Nodes by their labels and roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from webhook.model.cluster import Cluster, gather
from webhook.model.kinds import NODE
from webhook.model.labels import NOBODY, LabelIndex, Selection
from webhook.model.objects import Object
from webhook.model.selectors import Selector

CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Either label, with any value, makes a Node one of the control plane."""

WORKER: Final = "node-role.kubernetes.io/worker"


@dataclass(frozen=True, slots=True)
class _Nodes:
    index: LabelIndex
    unseen: str


def _nodes(cluster: Cluster) -> _Nodes:
    found, unseen = gather(cluster.list(NODE))
    return _Nodes(LabelIndex(found), unseen)


def select(cluster: Cluster, selector: Selector) -> Selection:
    """The Nodes that a selector matches."""
    nodes = cluster.derive(_nodes)
    return Selection(nodes.index, nodes.index.select(selector), nodes.unseen)


def control_plane(nodes: Selection) -> Selection:
    """Those of the control plane."""
    return nodes.among(NOBODY.union(*map(nodes.index.labelled, CONTROL_PLANE)))


def is_control_plane(node: Object) -> bool:
    """Whether a Node is one of the control plane."""
    return any(label in node.labels for label in CONTROL_PLANE)
