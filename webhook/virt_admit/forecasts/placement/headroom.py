"""The free memory that drains need: what the fullest node holds, for each node that is drained at the same time.

Source: OpenShift Virtualization, Node overhead and live migration: the product of the nodes that can drain in parallel and
the highest total of VM memory requests on a node.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import candidates
from virt_admit.model import machine_pools
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, keep, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.resources import MEMORY

READS: Final = union(candidates.READS, machine_pools.READS)


class Headroom(NamedTuple):
    """The memory of VMs on the fullest node, and what is free for them elsewhere. Amounts are bytes."""

    fullest: str
    needed: int
    """Of the fullest node, for each node that is drained at once."""
    free: int
    """On the other nodes that run VMs; a node whose requests exceed its memory has none."""
    at_once: int


def headroom(cluster: Cluster) -> Headroom | None:
    """Return the headroom of the cluster; None: no VM runs, or there is no other node for VMs.

    Raises:
        Unseen: nodes, pods, VMIs or the allocatable memory of a node cannot be read.
    """
    found = cluster.cached(_headroom)
    if isinstance(found, Unseen):
        raise Unseen(found.what)
    return found


def _headroom(cluster: Cluster) -> Headroom | Unseen | None:
    for kind in (NODE, VMI, POD):
        unseen = unlisted(cluster, kind)
        if unseen:
            return Unseen(unseen)
    try:
        at_once = machine_pools.draining_at_once(cluster) or 1
    except Unseen as blind:
        return blind
    held = {name: keep(cluster, (_held, name), partial(_held, node=name)) for name in vmis.occupied(cluster)}
    if not held:
        return None
    fullest = max(sorted(held), key=lambda name: held[name])
    filters = candidates.scheduler(cluster)
    others = [node for node in filters.state.nodes.values() if node.name != fullest and SCHEDULABLE in node.labels]
    blind_nodes = [node.name for node in others if node.allocatable is None]
    if blind_nodes:
        return Unseen(f"status.allocatable of node {min(blind_nodes)}")
    return Headroom(fullest, at_once * held[fullest], _free(filters, fullest), at_once) if others else None


def _held(cluster: Cluster, node: str) -> int:
    """Return the memory that the VMs of a node request."""
    return sum(candidates.requests(vmi, cluster).get(MEMORY, 0) for vmi in vmis.on_node(cluster, node))


def _free(filters: FilterPipeline, fullest: str) -> int:
    state = filters.state
    others = (node for node in state.nodes.values() if node.name != fullest and SCHEDULABLE in node.labels)
    return sum(max(0, state.free(node).get(MEMORY, 0)) for node in others if not node.cordoned and node.ready)
