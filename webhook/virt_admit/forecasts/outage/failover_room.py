"""How much room the loss of nodes or of a zone leaves for the VMs that start again:
the sum of what is free.

Nothing fits where the sum is short, so a shortage is certain. The opposite is not: the free room
may be in pieces. The sum does not change when VMs move, so a migration or a drain never turns a yes
into a no.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, check_time
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand as expand_module
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_resources, vm_ledger
from virt_admit.model.kubevirt.launcher.vm_ledger import VmLedger
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.ledger import Ledger, Role, Shape, as_requests
from virt_admit.model.scheduler.preemption import HIGHEST
from virt_admit.model.scheduler.resources import PODS, Resources
from virt_admit.model.scheduler.room_totals import (
    NOTHING,
    Amounts,
    ByNode,
    RoomSums,
    RoomTotals,
    RoomView,
    VmDemands,
    weights_of,
)

T = TypeVar("T")

READS: Final = union(
    vm_ledger.READS, expand_module.READS, launcher_resources.READS, {VMI: ("spec",)}
)


class RoomLoss(NamedTuple):
    """Nodes that stop at the same moment."""

    nodes: frozenset[str]
    zone: str = ""

    def __str__(self) -> str:
        return f"zone {self.zone}" if self.zone else " and ".join(sorted(self.nodes))


class Weighed(NamedTuple):
    """What a loss takes of the free room: what was free on the nodes,
    and what their VMs need on others.
    """

    weight: int
    loss: RoomLoss


VMS_ALONE: Final = RoomView()
_MOST_SETS: Final = 8
"""The sets of several nodes or zones that are tried."""


@dataclass(frozen=True, eq=False)
class Room:
    """What the nodes with KubeVirt offer and hold."""

    ledger: Ledger
    vms: VmLedger
    computed: Mapping[tuple[str, str], tuple[str, Shape]] = field(default_factory=dict)
    """Node and shape of VMIs that start again and have no pod, by namespace and name."""
    memo: dict[Hashable, Any] = field(default_factory=dict)
    """Results that are remembered as long as the cluster does not change."""

    def number(self, view: RoomView = VMS_ALONE) -> int:
        """Return on how many nodes VMs may run.

        Raises:
            Unseen: one of them does not report what it offers.
        """
        return self._totals(view).number

    def tight(
        self, margins: Mapping[str, int], tolerance: Tolerance, view: RoomView = VMS_ALONE
    ) -> Collection[str]:
        """Return the resources of which perhaps less than a margin is free after a loss.

        The sums show that without a look at single nodes, except for zones and a reserve.
        """
        if tolerance.zones or tolerance.reserve:
            return margins
        _, free, heaviest, *_ = self._totals(view)
        return [
            resource
            for resource, margin in margins.items()
            if free.get(resource, 0) - heaviest.get(resource, 0) * tolerance.nodes < margin
        ]

    def has_other_places(self, memory: int, view: RoomView = VMS_ALONE) -> bool:
        """Return whether the loss of any node leaves more places of so much memory than it has VMs,
        as far as that shows without a look at single nodes.
        """
        totals = self._totals(view)
        missing = totals.heaviest.get(PODS, 0) + 1
        others = totals.largest[:-1]  # the largest node may be the lost one
        if others and others[0] // memory * len(others) >= missing:
            return True
        for free in reversed(others):
            if missing <= 0 or free < memory:
                break
            missing -= free // memory
        return missing <= 0

    def by_node(self, view: RoomView = VMS_ALONE) -> ByNode:
        """Return the amounts of each resource that a node offers or holds, by node on which VMs may
        run, whether or not it is cordoned or Ready at the moment.

        Raises:
            Unseen: a node does not report what it offers.
        """
        return self._table(view)[1]

    def amounts(self, resource: str, view: RoomView = VMS_ALONE) -> Mapping[str, Amounts]:
        """Return what is free and what needs another place after a loss,
        by node on which VMs may run.

        Raises:
            Unseen: a node does not report what it offers.
        """
        key = "amounts", resource, view
        if key not in self.memo:
            self.memo[key] = {
                name: each.get(resource, NOTHING) for name, each in self.by_node(view).items()
            }
        found: Mapping[str, Amounts] = self.memo[key]
        return found

    def free(self, resource: str, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource is free on all nodes together."""
        return self._table(view)[0].free.get(resource, 0)

    def _totals(self, view: RoomView) -> RoomTotals:
        key = "totals", view
        if key not in self.memo:
            self.memo[key] = _checked(self._read(view, lambda sums: sums.totals))
        found: RoomTotals = self.memo[key]
        return found

    def _table(self, view: RoomView) -> tuple[RoomTotals, ByNode]:
        """Return the nodes, and the sums of the same moment."""
        key = "table", view
        if key not in self.memo:
            totals, by_node = self._read(view, lambda sums: sums.by_node)
            self.memo[key] = _checked(totals), by_node
        found: tuple[RoomTotals, ByNode] = self.memo[key]
        return found

    def _read(self, view: RoomView, read: Callable[[RoomSums], T]) -> T:
        effective = self._effective(view)
        return self.ledger.derive(effective, lambda: RoomSums(effective), read)

    def _effective(self, view: RoomView) -> RoomView:
        """Return the view with what the VMs of the cluster demand."""
        every = self.ledger.derive(VmDemands, VmDemands, lambda demands: demands.every)
        priorities = [
            each for each in (view.highest, *(highest for highest, _ in every)) if each is not None
        ]
        tolerant = view.tolerant or any(tolerant for _, tolerant in every)
        return view._replace(highest=max(priorities, default=None), tolerant=tolerant)

    @property
    def pending(self) -> Resources:
        """What VMs that start at the moment ask for and no node holds yet."""
        return self.ledger.sums("").by_role.get(Role.RETURNS, {})

    def losses(
        self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE
    ) -> Sequence[Weighed]:
        """Return the losses that the cluster must survive, the heaviest first.

        None if nothing would be left.

        Of several nodes or zones at once only the heaviest sets are tried. Without VMs that are
        bound to their node the heaviest one decides.
        """
        key = "losses", resource, tolerance, view
        if key not in self.memo:
            every = self.by_node(view)
            weights = weights_of(resource, every, self.ledger)
            found = (
                *_of_nodes(weights, tolerance.nodes, len(every)),
                *self._of_zones(weights, tolerance.zones),
            )
            self.memo[key] = sorted(found, key=lambda each: (-each.weight, sorted(each.loss.nodes)))
        losses: Sequence[Weighed] = self.memo[key]
        return losses

    def _of_zones(self, weights: Mapping[str, int], number: int) -> Iterator[Weighed]:
        zones: dict[str, set[str]] = {}
        for name in weights if number else ():
            zones.setdefault(self.ledger.nodes[name].zone, set()).add(name)
        if number < 1 or number >= len(zones) or "" in zones:
            return
        weighed = sorted(
            ((sum(weights[name] for name in names), zone) for zone, names in zones.items()),
            reverse=True,
        )
        if number == 1:
            for weight, zone in weighed:
                yield Weighed(weight, RoomLoss(frozenset(zones[zone]), zone))
            return
        for lost in _heaviest_sets({zone: weight for weight, zone in weighed}, number):
            nodes = frozenset(name for zone in lost for name in zones[zone])
            yield Weighed(
                sum(weights[name] for name in nodes), RoomLoss(nodes, " and ".join(sorted(lost)))
            )

    def reserve(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource must stay free."""
        offered = sum(
            (self.ledger.nodes[name].allocatable or {}).get(resource, 0)
            for name in self.by_node(view)
        )
        return -(-offered * tolerance.reserve // 100)


def _of_nodes(weights: Mapping[str, int], number: int, among: int) -> Iterator[Weighed]:
    if number < 1 or number >= among:
        return
    if number == 1:
        for name, weight in weights.items():
            yield Weighed(weight, RoomLoss(frozenset((name,))))
        return
    for lost in _heaviest_sets(weights, number):
        yield Weighed(sum(weights[name] for name in lost), RoomLoss(frozenset(lost)))


def _heaviest_sets(weights: Mapping[str, int], number: int) -> Iterator[tuple[str, ...]]:
    """Yield the heaviest sets of so many names, the heaviest first.

    The next one replaces one name by the next lighter.
    """
    names = sorted(weights, key=lambda name: (-weights[name], name))

    def weighed(places: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return -sum(weights[names[place]] for place in places), places

    first = tuple(range(number)) if number <= len(names) else ()
    queue, known = [weighed(first)] if first else [], {first}
    for _ in range(_MOST_SETS):
        if not queue:
            return
        _, places = heapq.heappop(queue)
        yield tuple(names[place] for place in places)
        for index, place in enumerate(places):
            following = (*places[:index], place + 1, *places[index + 1 :])
            if (
                place + 1 < (places[index + 1] if index + 1 < number else len(names))
                and following not in known
            ):
                known.add(following)
                heapq.heappush(queue, weighed(following))


def _checked(totals: RoomTotals) -> RoomTotals:
    if totals.silent:  # the first by name: the order of nodes depends on what happened before
        raise Unseen(f"status.allocatable of node {min(totals.silent)}")
    return totals


def room(cluster: Cluster) -> Room:
    """Return the room of a cluster.

    Raises:
        Unseen: nodes, pods, VMIs or VMs cannot be read.
    """
    found = cluster.cached(_room)
    if isinstance(found, Unseen):
        raise Unseen(found.what)
    return found


def _room(cluster: Cluster) -> Room | Unseen:
    try:
        vms = vm_ledger.of(cluster)
    except Unseen as unseen:
        return unseen
    computed = dict(_computed(vms, cluster))
    ledger = vms.ledger.copy() if computed else vms.ledger
    for node, shape in computed.values():
        ledger.add(node, shape)
    return Room(
        ledger, vms, {key: each for key, each in computed.items() if each[1].role is Role.RETURNS}
    )


def _computed(
    vms: VmLedger, cluster: Cluster
) -> Iterator[tuple[tuple[str, str], tuple[str, Shape]]]:
    """Yield the VMIs that have no pod, in the size that KubeVirt computes.

    One whose size cannot be determined counts as nothing: a shortage stays certain without it.
    """
    for namespace, name in vms.without_pod():
        check_time()
        vmi = find(cluster, VMI, namespace, name)
        given = expand(vmi, cluster) if vmi is not None else None
        if given is not None and not given.unseen:
            requests = as_requests(launcher_resources.pod(given, cluster).requests)
            role = Role.RETURNS if vms.starts_again(namespace, name) else Role.STAYS
            priority = HIGHEST if role is Role.STAYS or given.spec["priorityClassName"].text else 0
            yield (namespace, name), (vms.node_of(namespace, name), Shape(role, requests, priority))
