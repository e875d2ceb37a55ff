"""The nodes that a selector matches, such as that of a health check."""

from __future__ import annotations

from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.labels import NO_POSITIONS, LabelIndex, Selection
from virt_admit.model.kubernetes.nodes import CONTROL_PLANE
from virt_admit.model.kubernetes.selectors import Selector


def _nodes(cluster: Cluster) -> tuple[LabelIndex, str]:
    found, unseen = gather(cluster.list(NODE))
    return LabelIndex(found), unseen


def select(cluster: Cluster, selector: Selector) -> Selection:
    """Return the Nodes that a selector matches."""
    index, unseen = cluster.cached(_nodes)
    return Selection(index, index.select(selector), unseen)


def control_plane(nodes: Selection) -> Selection:
    """Return the control plane nodes of a selection."""
    return nodes.among(NO_POSITIONS.union(*map(nodes.index.labelled, CONTROL_PLANE)))
