"""Nodes to which no VM of another node can go now, for a reason of the node itself: it is cordoned,
tainted, or its virt-handler or its devices do not work.

Where the others have room for all VMs, no verdict says it. A node that is not Ready, or that is
being updated, is named by those who ask for its state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.nodes import SCHEDULABLE, is_control_plane
from virt_admit.model.kubevirt.launcher import launcher_pod, without_kvm
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import names
from virt_admit.model.node_updates import cordoners, node_phases
from virt_admit.model.scheduler.pod_placement import Placement

_CORDONED: Final = "cordoned"
_OF_NODE: Final = (_CORDONED, launcher_pod.UNSERVED)
"""Causes that concern each VM (``node_labels.label_causes``)."""
TITLE: Final = "Nodes that take no VM"
_DEVICE: Final = "devices.kubevirt.io/"
_TAINT: Final = "taint "
_NOT_READY: Final = "not Ready"
_REGISTER_WITHIN: Final = timedelta(minutes=1)
"""The device plugins of KubeVirt try again after seconds."""


@dataclass(frozen=True, slots=True)
class ClosedTarget:
    """A node that takes no VM of another node now."""

    node: str
    reason: str


def closed(
    placements: Mapping[str, Sequence[Placement]], but: Collection[str], cluster: Cluster
) -> tuple[ClosedTarget, ...]:
    """Return the nodes for VMs that certainly take none of the others now.

    ``placements``: where the VMs of each node could go. ``but``: nodes to leave out.
    """
    nodes = (node.name for node in cluster.known(NODE) if SCHEDULABLE in node.labels)
    found = ((name, _causes(name, placements, cluster)) for name in nodes if name not in but)
    return tuple(
        ClosedTarget(name, _together(causes, name, cluster))
        for name, causes in sorted(found)
        if causes
    )


def _together(causes: Sequence[str], name: str, cluster: Cluster) -> str:
    """Return the causes of a node, and that its devices come back where its kubelet has started."""
    said = "; ".join(_told(each, name, cluster) for each in causes)
    started = node_health.kubelet_started(name, cluster)
    absent = any(each.startswith(_DEVICE) for each in causes)
    if started is None or started >= _REGISTER_WITHIN or not absent:
        return said
    since = clock.duration(started)
    return f"{said}. Its kubelet started {since} ago: devices are back within a minute"


def _told(cause: str, name: str, cluster: Cluster) -> str:
    """Return a cause with since when a node is cordoned and by what, as far as that is known."""
    node = find(cluster, NODE, "", name)
    if cause != _CORDONED or node is None:
        return cause
    since = clock.lasting(clock.stamp(node_phases.cordoned_since(node)), cluster)
    cordon = cordoners.of_node(node, cluster)
    if cordon is not None:
        left = cordon.by_hand and cordon.ends is False
        return f"{cause}{since}{f' by {cordon.by}' if left else ''}"
    by = node_phases.cordoned_by(node)
    return f"{cause}{since}{f' by {by}' if by else ''}"


def _causes(
    name: str, placements: Mapping[str, Sequence[Placement]], cluster: Cluster
) -> Sequence[str]:
    """Return the causes of a node itself for which it refuses every VM; empty: it may take one, or
    each has a cause of its own.
    """
    others = (each for on, some in placements.items() if on != name for each in some)
    common: list[str] = []
    for number, placement in enumerate(others):
        said = placement.refusal(name).split("; ")
        common = [each for each in (common if number else said) if each in said]
        if not any(common):
            return ()
    if _NOT_READY in common:
        return ()
    if common and without_kvm.is_off(name, cluster):
        return (without_kvm.OFF,)
    broken = cluster.cached(virt_handlers.broken).get(name, "").split("; ") if common else ()
    node = find(cluster, NODE, "", name)
    # a tainted node with VMs is meant for them, and one of the control plane is meant for none
    meant = placements.get(name) or (node is not None and is_control_plane(node))
    tainted = () if meant else (_TAINT,)
    return [
        each
        for each in common
        if each in _OF_NODE or each in broken or each.startswith((_DEVICE, *tainted))
    ]


def lines(found: Sequence[ClosedTarget]) -> Iterator[str]:
    """Yield which nodes take no VM now, once for each reason."""
    for reason, some in grouped(found, lambda each: each.reason).items():
        yield f"No VM can go to {names((each.node for each in some), 80)} now: {reason}"
