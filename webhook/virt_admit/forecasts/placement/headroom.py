"""The free memory that drains need: what the fullest node holds,
for each node that is drained at the same time.

Source: OpenShift Virtualization, Node overhead and live migration: the product of the nodes that
can drain in parallel and the highest total of VM memory requests on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import candidates
from virt_admit.model import machine_pools
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, each, keep, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import names
from virt_admit.model.scheduler import resources
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import CPU, MEMORY
from virt_admit.model.scheduler.snapshot import Node

READS: Final = union(candidates.READS, machine_pools.READS)
_STARTING: Final = frozenset(("Pending", "Scheduling"))


class Headroom(NamedTuple):
    """The memory of VMs on the fullest node, and what is free for them elsewhere.

    Amounts are bytes.
    """

    fullest: str
    needed: int
    """Of the fullest node, for each node that is drained at once."""
    free: int
    """On the other nodes that run VMs; a node whose requests exceed its memory has none."""
    at_once: int
    away: tuple[str, ...] = ()
    """The other nodes that are cordoned or not Ready now."""
    later: int = 0
    """What the other nodes have free when these take VMs again."""

    @property
    def enough_later(self) -> bool:
        """Whether there is room once these nodes take VMs again."""
        return self.free < self.needed <= self.later


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
    held = {
        name: keep(cluster, (_held, name), partial(_held, node=name))
        for name in vmis.occupied(cluster)
    }
    if not held:
        return None
    fullest = max(sorted(held), key=lambda name: held[name])
    filters = candidates.scheduler(cluster)
    gone = {node.name for node in cluster.known(NODE) if node.deleted}  # they do not come back
    others = [
        node
        for node in filters.state.nodes.values()
        if node.name != fullest and SCHEDULABLE in node.labels and node.name not in gone
    ]
    blind_nodes = [node.name for node in others if node.allocatable is None]
    if blind_nodes:
        return Unseen(f"status.allocatable of node {min(blind_nodes)}")
    if not others:
        return None
    away = tuple(sorted(node.name for node in others if node.cordoned or not node.ready))
    free, later = (_free(filters, others, later=later) for later in (False, True))
    return Headroom(fullest, at_once * held[fullest], free, at_once, away, later)


def _held(cluster: Cluster, node: str) -> int:
    """Return the memory that the VMs of a node request."""
    return sum(
        candidates.requests(vmi, cluster).get(MEMORY, 0) for vmi in vmis.on_node(cluster, node)
    )


def _free(filters: FilterPipeline, others: Iterable[Node], *, later: bool) -> int:
    return sum(
        max(0, filters.state.free(node).get(MEMORY, 0))
        for node in others
        if later or (not node.cordoned and node.ready)
    )


class Contest(NamedTuple):
    """VMs that wait for a node and leave no room for another VM on one that takes no VM yet."""

    waiting: tuple[str, ...] = ()
    """Empty: there are none."""
    lacks: str = ""
    """What is missing for all of them, as ``memory: 3Gi missing``."""

    @property
    def reason(self) -> str:
        """What it means, as the end of a sentence about the node."""
        wait = "which waits" if len(self.waiting) == 1 else "which wait"
        said = (
            f", and the node has no room for it besides {names(self.waiting)}, {wait} for a node "
            f"({self.lacks})"
        )
        return said if self.waiting else ""

    def completed(self, remedy: str) -> str:
        """Return the repair of the node, which may end in a command,
        with what is needed besides.
        """
        words, kubectl, command = remedy.partition(": kubectl ")
        more = f"; as {names(self.waiting)} may start there first, also free room or add a node"
        return f"{words}{kubectl}{command}{more if self.waiting else ''}"


def contest(pod: Pod, node: str, opens: Callable[[str], bool], cluster: Cluster) -> Contest:
    """Return which VMs leave no room for a pod on a node that takes no VM yet, if any are known to.

    ``opens``: whether a refusal of the node ends when it takes VMs.
    """
    state, there = candidates.scheduler(cluster).state, {}
    for name, found in waiting(cluster):
        only_there = found.placement.is_certain and not found.placement.has_candidate
        if name != pod.full_name and only_there and opens(found.placement.refusals.get(node, "?")):
            there[name] = found.pod
    if not there or node not in state.nodes:
        return Contest()
    total = {
        key: sum(each.requests.get(key, 0) for each in (pod, *there.values()))
        for key in (CPU, MEMORY)
    }
    lacks = resources.missing(total, state.free(state.nodes[node]))
    said = names(f"{key}: {resources.show(key, lack)} missing" for key, lack in lacks)
    return Contest(tuple(there), said) if said else Contest()


@cached
def waiting(cluster: Cluster) -> tuple[tuple[str, candidates.SchedulingTarget], ...]:
    """Return where the VMIs could go that wait for their first node, by name."""
    found = sorted(filter(None, each(cluster, VMI, _starting)), key=lambda vmi: vmi.full_name)
    return tuple((vmi.full_name, candidates.target(vmi, cluster, moves=False)) for vmi in found)


def _starting(vmi: Object) -> Object | None:
    """Return a VMI that waits for its first node."""
    waits = (
        vmi.at("status", "phase").text in _STARTING
        and not vmi.at("status", "nodeName").text
        and not vmi.deleted
    )
    return vmi if waits else None
