"""The loss of nodes: they stop at the same moment and do not return. Nothing else changes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.drain.starting import starting_guests
from virt_admit.forecasts.placement import candidates, running_launchers, virt_handlers
from virt_admit.forecasts.placement.components import node_drivers
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, gather
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import count, names
from virt_admit.model.remediation import control_plane
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.preemption import Preemption
from virt_admit.model.scheduler.snapshot import Node

READS: Final[Reads] = union(
    control_plane.READS,
    virt_handlers.READS,
    starting_guests.READS,
    {POD: ("metadata.ownerReferences",)},
)

ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"

_STAY: Final = frozenset(
    (
        *("DaemonSet", "Node", "VirtualMachineInstance", "Pod"),
        *("InstanceManager", "BackingImageManager"),
    )
)
"""Owners whose pods need no room after a loss: pods of daemons, static pods and those of Longhorn
(controller/instance_manager_controller.go, backing_image_manager_controller.go: ``Spec.NodeID``)
belong to their node. Launcher pods are counted as VMs, and the pods that attach their volumes with
them.
"""

SLOW_ZONE: Final = 50
"""Nodes up to which the node controller deletes no pod in a zone in trouble
(``large-cluster-size-threshold``).
"""
_UNHEALTHY_SHARE: Final = (55, 100)
"""The share of not ready nodes from which a zone is in trouble (``unhealthy-zone-threshold``)."""
_BETWEEN_TAINTS: Final = 10
"""Seconds between the taints of two nodes of a zone (``node-eviction-rate``)."""
_BETWEEN_SLOW_TAINTS: Final = 100
"""The same in a large zone in trouble (``secondary-node-eviction-rate``)."""
_NOTICED_APART: Final = 15
"""Seconds between the first and the last node that is noticed: 10 s of the Lease, and 5 s until the
next look. Meanwhile a zone that is lost as a whole counts as in trouble, so none of its nodes is
tainted.
"""


class Quorum(NamedTuple):
    """The control-plane nodes after a loss."""

    nodes: int
    """As far as they are in the cluster. 0: the control plane is assumed to be outside."""
    left: int
    """Without those that are down already."""
    kept: bool | None
    """Whether more than half of them are left. None: nodes not Ready, or not read, decide."""


@dataclass(frozen=True)
class Loss:
    """The loss of some nodes."""

    nodes: tuple[str, ...]
    """Sorted."""
    cluster: Cluster
    lost: frozenset[str] = field(init=False)
    memo: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What others derive from this loss alone, by their keys."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lost", frozenset(self.nodes))

    def __reduce__(self) -> tuple[type[Loss], tuple[tuple[str, ...], Cluster]]:
        """Let pickle leave out what is derived."""
        return Loss, (self.nodes, self.cluster)

    @functools.cached_property
    def scheduler(self) -> FilterPipeline:
        """kube-scheduler's filters over what is left.

        Target pods of migrations that end with their source are gone.
        """
        left = self.cluster.cached(_with_drivers).without_nodes(self.lost)
        return left.without_pods(self._orphans(left))

    def _orphans(self, left: FilterPipeline) -> Iterator[Pod]:
        second = self.cluster.cached(_second_pods)
        for node in self.nodes:
            for name in second.get(node, ()):
                for bound in left.state.pods.values() if name else ():
                    yield from (pod for pod in bound if pod.full_name == name)

    @functools.cached_property
    def preemption(self) -> Preemption:
        """What kube-scheduler's preemption could do on what is left."""
        return Preemption(self.scheduler)

    @functools.cached_property
    def others(self) -> tuple[Pod, ...]:
        """The ordinary pods of the lost nodes that their controllers create again."""
        owned = self.cluster.cached(_owned_pods)
        state = candidates.scheduler(self.cluster).state
        return tuple(
            replace(pod, node="")
            for node in self.nodes
            for pod in state.pods.get(node, ())
            if pod.full_name in owned
        )

    @functools.cached_property
    def homeless(self) -> tuple[str, ...]:
        """Those of them that no node which is left can ever run, as ``namespace/name``."""
        return tuple(
            pod.full_name for pod in self.others if self.scheduler.ever(pod, "", "") is False
        )

    def vmis(self, node: str) -> tuple[Object, ...]:
        """Return the known VMIs on a node, with those whose pods only wait there."""
        found: list[Object] = []
        with contextlib.suppress(Unseen):  # after those that are known; the forecast says it
            found.extend(starting_guests.lost_with(self.cluster, node))
        return tuple(found)

    @functools.cached_property
    def quorum(self) -> Quorum:
        """What is left of the control plane."""
        members = control_plane.members(self.cluster)
        states = [member.up for name, member in members.items() if name not in self.lost]
        left, needed = len(states) - states.count(False), control_plane.majority(len(members))
        if every_node(self.cluster)[1]:
            return Quorum(len(members), left, kept=None)
        if not members or states.count(True) >= needed:
            return Quorum(len(members), left, kept=True)
        return Quorum(len(members), left, kept=False if left < needed else None)

    def _not_up(self, up: bool | None) -> list[str]:
        """Return why members of etcd that are not lost are not up, or not certainly."""
        members = control_plane.members(self.cluster).items()
        return [member.why for name, member in members if name not in self.lost and member.up is up]

    @property
    def quorum_doubt(self) -> str:
        """What decides whether the API stops; empty: that is known."""
        if self.quorum.kept is not None:
            return ""
        if every_node(self.cluster)[1]:
            return "control-plane nodes that were not read decide whether the API stops"
        return f"{names(self._not_up(None), 200)}, which decides whether the API stops"

    @property
    def stopped(self) -> str:
        """Why the API stops, so that no controller acts; empty: it goes on, or it is not known."""
        quorum = self.quorum
        if quorum.kept is not False:
            return ""
        are = "is" if 1 in (quorum.left, quorum.nodes) else "are"
        down = self._not_up(False)
        why = f" ({names(down, 200)})" if down else ""
        return (
            f"the API stops: {quorum.left} of {count(quorum.nodes, 'control-plane node')} {are} "
            f"left{why}"
        )

    @functools.cached_property
    def leader_moves(self) -> bool:
        """Whether the leader of kube-controller-manager may be on a lost node."""
        return not self.lost.isdisjoint(control_plane.members(self.cluster))

    def taint_delay(self, node: str) -> int | None:
        """Return how many seconds at most pass from the moment at which a lost node is noticed
        until it is tainted.

        None: kube-controller-manager taints none in its zone, so it deletes no pod
        (pkg/controller/nodelifecycle/node_lifecycle_controller.go#ComputeZoneState,
        #ReducedQPSFunc).
        """
        zones = self._zones
        if all(zone.ready == 0 for zone in zones.values()):
            return None
        zone = zones[self.cluster.cached(_zone_of).get(node, ())]
        others = sum(1 for _ in self.in_zone_of(node)) - 1
        down, total = zone.total - zone.ready, zone.total
        if zone.ready == 0 or down <= 2 or down * _UNHEALTHY_SHARE[1] < total * _UNHEALTHY_SHARE[0]:
            return others and others * _BETWEEN_TAINTS + _NOTICED_APART
        return None if total <= SLOW_ZONE else others * _BETWEEN_SLOW_TAINTS + _NOTICED_APART

    def taints_the_first(self, node: str) -> bool:
        """Return whether one lost node of a zone is tainted although its zone is in trouble: it is
        noticed before the others, and tainted at once (``tests/upstream/clocks.py``).
        """
        return self.taint_delay(node) is None and any(zone.ready for zone in self._zones.values())

    def in_zone_of(self, node: str) -> Iterator[str]:
        """Yield the lost nodes of the node's zone."""
        zone_of = self.cluster.cached(_zone_of)
        yield from (name for name in self.nodes if zone_of.get(name, ()) == zone_of.get(node, ()))

    @functools.cached_property
    def _zones(self) -> Mapping[tuple[str, ...], _Zone]:
        found = dict(self.cluster.cached(_zones))
        ready = self.cluster.cached(_ready)
        zone_of = self.cluster.cached(_zone_of)
        for node in self.nodes:
            zone = found.get(zone_of.get(node, ()), _Zone(1, 1))
            found[zone_of.get(node, ())] = zone._replace(
                ready=zone.ready - (node in ready or node not in zone_of)
            )
        return found


class _Zone(NamedTuple):
    total: int
    ready: int


def _with_drivers(cluster: Cluster) -> FilterPipeline:
    """Return the filters over the nodes that start VMs: with the drivers of their volumes, and with
    a virt-handler that works.

    A virt-handler that crashes leaves the label that kube-scheduler looks at, or writes it again
    with each of its starts.
    """
    served = node_drivers.served(candidates.scheduler(cluster), cluster)
    broken = {name for name in cluster.cached(virt_handlers.broken) if _stays(name, cluster)}
    return served.changed(broken, _unserved) if broken else served


def _unserved(node: Node) -> Node:
    """Return a node without the label by which launcher pods are placed, if it has that."""
    if SCHEDULABLE not in node.labels:
        return node
    return replace(node, labels={**node.labels, SCHEDULABLE: "false"})


def _stays(node: str, cluster: Cluster) -> bool:
    """Return whether no wait repairs the virt-handler of a node."""
    return bool(virt_handlers.repair(cluster, node))


@cached
def every_node(cluster: Cluster) -> tuple[dict[str, Object], str]:
    """Return the known nodes by name, and what could not be read."""
    found, unseen = gather(cluster.list(NODE))
    return {node.name: node for node in found}, unseen


def _ready(cluster: Cluster) -> frozenset[str]:
    nodes = every_node(cluster)[0].items()
    return frozenset(
        name for name, node in nodes if node.condition("Ready")["status"].text in (None, "True")
    )


def _zone_of(cluster: Cluster) -> Mapping[str, tuple[str, ...]]:
    """Return the zone of each node, as kube-controller-manager sees zones: region and zone."""
    return {
        name: tuple(node.labels.get(key, "") for key in (_REGION, ZONE))
        for name, node in every_node(cluster)[0].items()
    }


def _zones(cluster: Cluster) -> Mapping[tuple[str, ...], _Zone]:
    ready = cluster.cached(_ready)
    found: dict[tuple[str, ...], _Zone] = {}
    for name, zone in cluster.cached(_zone_of).items():
        total, up = found.get(zone, _Zone(0, 0))
        found[zone] = _Zone(total + 1, up + (name in ready))
    return found


def of_zone(cluster: Cluster, zone: str, key: str) -> Iterable[str]:
    """Return the names of the nodes whose label ``key`` names this zone, sorted."""
    return sorted(
        name for name, node in every_node(cluster)[0].items() if node.labels.get(key) == zone
    )


def zones(cluster: Cluster, key: str) -> Iterable[str]:
    """Return the zones that the nodes name, sorted."""
    return sorted(
        {node.labels[key] for node in every_node(cluster)[0].values() if key in node.labels}
    )


def _owned_pods(cluster: Cluster) -> frozenset[str]:
    """Return ``namespace/name`` of the pods that a controller creates again elsewhere."""
    return frozenset(
        f"{pod.namespace or 'default'}/{pod.name}"
        for pod in cluster.known(POD)
        if not pod.ended and not pod.deleted and _comes_again(pod)
    )


def _comes_again(pod: Object) -> bool:
    owner = pod.controller
    return owner is not None and owner["kind"].text not in _STAY


def _second_pods(cluster: Cluster) -> Mapping[str, tuple[str, ...]]:
    """Return the launcher pods on other nodes than that of their VMI, by the node of the VMI."""
    by_vmi = running_launchers.launchers(cluster).by_vmi
    found: dict[str, list[str]] = {}
    for vmi, some in by_vmi.items():
        if len(some) > 1:
            here = cluster.cached(_node_of_vmi).get(vmi, "")
            found.setdefault(here, []).extend(
                f"{pod.namespace or 'default'}/{pod.name}"
                for pod in some
                if pod.at("spec", "nodeName").text != here
            )
    return {node: tuple(names) for node, names in found.items()}


def _node_of_vmi(cluster: Cluster) -> Mapping[tuple[str, str], str]:
    return {
        (vmi.namespace or "default", vmi.name): vmi.at("status", "nodeName").text or ""
        for vmi in cluster.known(VMI)
    }
