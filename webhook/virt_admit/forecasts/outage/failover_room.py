"""How much room the loss of nodes or of a zone leaves for the VMs that start again: the sum of what is free.

Nothing fits where the sum is short, so a shortage is certain. The opposite is not: the free room may be in pieces. The sum
does not change when VMs move, so a migration or a drain never turns a yes into a no.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, check_time
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand as expand_module
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_resources, vm_ledger
from virt_admit.model.kubevirt.launcher.vm_ledger import VmLedger
from virt_admit.model.scheduler.ledger import Ledger, NodeSums, Role, Shape, as_requests
from virt_admit.model.scheduler.preemption import HIGHEST

READS: Final = union(vm_ledger.READS, expand_module.READS, launcher_resources.READS, {VMI: ("spec",)})


class RoomLoss(NamedTuple):
    """Nodes that stop at the same moment."""

    nodes: frozenset[str]
    zone: str = ""

    def __str__(self) -> str:
        return f"zone {self.zone}" if self.zone else " and ".join(sorted(self.nodes))


class Weighed(NamedTuple):
    """What a loss takes of the free room: what was free on the nodes, and what their VMs need on others."""

    weight: int
    loss: RoomLoss


class RoomView(NamedTuple):
    """How the room is counted."""

    everything: bool = False
    """Whether pods of other controllers need a new place too."""
    tolerant: bool = False
    """Whether a VM tolerates the taints of nodes that are closed to others."""
    highest: int | None = None
    """The highest priority of a new VM."""


VMS_ALONE: Final = RoomView()


class Amounts(NamedTuple):
    """One resource on one node."""

    free: int
    needs: int
    """What has to find another place after its loss."""


class _Vms(NamedTuple):
    """What the VMs of a node that return demand."""

    highest: int | None
    tolerant: bool


class _EveryVm(NamedTuple):
    """What the VMs of all nodes that return demand."""

    nodes: Mapping[str, _Vms]
    numbers: Mapping[_Vms, int]
    """The nodes with the same demand. A cluster has few different ones."""


class _Table(NamedTuple):
    """The nodes on which VMs may run, and the sums of each resource."""

    nodes: Mapping[str, Mapping[str, Amounts]]
    """By node and resource. What a node neither offers nor holds is left out."""
    free: Mapping[str, int]
    heaviest: Mapping[str, tuple[int, str]]
    """By resource an upper bound of what the loss of one node takes of the free room, and that node."""
    silent: frozenset[str]
    """The nodes that do not report what they offer."""


_NONE: Final = _Vms(None, tolerant=False)
_NO_VMS: Final = _EveryVm({}, {})
_EMPTY: Final = _Table({}, {}, {}, frozenset())
_NOTHING: Final = Amounts(0, 0)
_LIGHTEST: Final = (0, "")
_MOST_SETS: Final = 8
"""The sets of several nodes or zones that are tried."""
_DRIFT: Final = 64
"""The heaviest node is searched again once it became lighter by more than one part in so many."""


@dataclass(frozen=True, eq=False)
class Room:
    """What the nodes with KubeVirt offer and hold."""

    ledger: Ledger
    vms: VmLedger
    computed: Mapping[tuple[str, str], tuple[str, Shape]] = field(default_factory=dict)
    """Node and shape of VMIs that start again and have no pod, by namespace and name."""
    memo: dict[Hashable, Any] = field(default_factory=dict)
    """Results that are remembered as long as the cluster does not change."""

    def open(self, view: RoomView = VMS_ALONE) -> Collection[str]:
        """Return the nodes on which VMs may run, whether or not they are cordoned or Ready at the moment.

        Raises:
            Unseen: one of them does not report what it offers.
        """
        return self.by_node(view)

    def by_node(self, view: RoomView = VMS_ALONE) -> Mapping[str, Mapping[str, Amounts]]:
        """Return the amounts of each resource that a node offers or holds, by node on which VMs may run.

        Raises:
            Unseen: a node does not report what it offers.
        """
        return self._table(view).nodes

    def amounts(self, resource: str, view: RoomView = VMS_ALONE) -> Mapping[str, Amounts]:
        """Return what is free and what needs another place after a loss, by node on which VMs may run.

        Raises:
            Unseen: a node does not report what it offers.
        """
        key = "amounts", resource, view
        if key not in self.memo:
            self.memo[key] = {name: each.get(resource, _NOTHING) for name, each in self.by_node(view).items()}
        found: Mapping[str, Amounts] = self.memo[key]
        return found

    def free(self, resource: str, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource is free on all nodes together."""
        return self._table(view).free.get(resource, 0)

    def _table(self, view: RoomView) -> _Table:
        key = "table", view
        if key not in self.memo:
            effective = self._effective(view)

            def follow(before: _Table, changed: Collection[str]) -> _Table:
                return self._changed(before, {name: self._of(name, effective) for name in changed})

            found = self.ledger.derive(("table", effective), _EMPTY, follow)
            if found.silent:  # the first by name: the order of nodes depends on what happened before
                raise Unseen(f"status.allocatable of node {min(found.silent)}")
            self.memo[key] = found
        table: _Table = self.memo[key]
        return table

    def _changed(self, table: _Table, changed: Mapping[str, Mapping[str, Amounts] | None]) -> _Table:
        """Return a table after what some nodes offer or hold changed; None: no VM may run there."""
        every, free = dict(table.nodes), Counter(table.free)
        for name, after in changed.items():
            for resource, amounts in every.pop(name, {}).items():
                free[resource] -= amounts.free
            for resource, amounts in (after or {}).items():
                free[resource] += amounts.free
            if after is not None:
                every[name] = after
        heaviest = {resource: self._heaviest(resource, table, changed, every) for resource in free}
        silent = (table.silent - changed.keys()) | {name for name, after in changed.items() if after == {}}
        return _Table(every, free, heaviest, silent)

    def _heaviest(
        self,
        resource: str,
        table: _Table,
        changed: Mapping[str, Mapping[str, Amounts] | None],
        every: Mapping[str, Mapping[str, Amounts]],
    ) -> tuple[int, str]:
        """Return the heaviest node. One that became a little lighter stays: looking at all nodes takes much longer."""
        most, heaviest = table.heaviest.get(resource, _LIGHTEST)
        weights = self._weights_of(resource, {name: every[name] for name in changed if name in every})
        if heaviest in changed and most - weights.get(heaviest, 0) > most // _DRIFT:
            most, heaviest, weights = *_LIGHTEST, self._weights_of(resource, every)
        return max([(most, heaviest), *((weight, name) for name, weight in weights.items())])

    def _weights_of(self, resource: str, every: Mapping[str, Mapping[str, Amounts]]) -> dict[str, int]:
        """Return what the loss of each node that can be lost takes of the free room."""
        found = {}
        for name, amounts in every.items():
            if self._can_be_lost(name):
                each = amounts.get(resource, _NOTHING)
                found[name] = each.free + each.needs
        return found

    def _can_be_lost(self, name: str) -> bool:
        node = self.ledger.nodes.get(name)  # an informer may just have removed it
        return node is not None and node.can_be_lost

    def _effective(self, view: RoomView) -> RoomView:
        """Return the view with what the VMs of the cluster demand."""
        key = "effective", view
        if key not in self.memo:
            every = self.ledger.derive("vms", _NO_VMS, self._with_vms).numbers
            priorities = [each for each in (view.highest, *(vms.highest for vms in every)) if each is not None]
            tolerant = view.tolerant or any(vms.tolerant for vms in every)
            self.memo[key] = view._replace(highest=max(priorities, default=None), tolerant=tolerant)
        found: RoomView = self.memo[key]
        return found

    def _with_vms(self, before: _EveryVm, changed: Collection[str]) -> _EveryVm:
        nodes, numbers = dict(before.nodes), Counter(before.numbers)
        for name in changed:
            numbers[nodes.pop(name, _NONE)] -= 1
            if not name or name in self.ledger.nodes:
                sums = self.ledger.sums(name)
                nodes[name] = _Vms(sums.highest, sums.tolerant)
            numbers[nodes.get(name, _NONE)] += 1
        return _EveryVm(nodes, +numbers)

    def _of(self, name: str, view: RoomView) -> Mapping[str, Amounts] | None:
        """Return the amounts of a node by resource, empty: it does not report what it offers; None: it does not exist,
        or no VM may run there."""
        node = self.ledger.nodes.get(name)
        if node is None or not node.hosts_vms:
            return None
        sums = self.ledger.sums(name)
        if node.is_closed and not view.tolerant and Role.RETURNS not in sums.by_role:
            return None
        if node.allocatable is None:
            return {}
        needs = Counter(sums.by_role.get(Role.RETURNS, {}))
        if view.everything:
            needs.update(sums.by_role.get(Role.CONTROLLED, {}))
        free = dict(node.allocatable)
        for amounts in sums.by_role.values():
            for resource, amount in amounts.items():
                free[resource] = free.get(resource, 0) - amount
        for resource, amount in _preemptible(sums, view).items():
            free[resource] += amount
        return {resource: Amounts(max(0, amount), needs[resource]) for resource, amount in free.items()}

    def pending(self, resource: str) -> int:
        """Return what VMs that start at the moment ask for and no node holds yet."""
        return self.ledger.sums("").by_role.get(Role.RETURNS, {}).get(resource, 0)

    def losses(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> Sequence[Weighed]:
        """Return the losses that the cluster must survive, the heaviest first. None if nothing would be left.

        Of several nodes or zones at once only the heaviest sets are tried. Without VMs that are bound to their node the
        heaviest one decides.
        """
        key = "losses", resource, tolerance, view
        if key not in self.memo:
            every = self.by_node(view)
            weights = self._weights_of(resource, every)
            found = (*_of_nodes(weights, tolerance.nodes, len(every)), *self._of_zones(weights, tolerance.zones))
            self.memo[key] = sorted(found, key=lambda each: (-each.weight, sorted(each.loss.nodes)))
        losses: Sequence[Weighed] = self.memo[key]
        return losses

    def at_most(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> int:
        """Return an upper bound of the weight of each loss, which is found faster than the losses."""
        table = self._table(view)
        if tolerance.zones:
            return sum(self._weights_of(resource, table.nodes).values())
        return table.heaviest.get(resource, _LIGHTEST)[0] * tolerance.nodes

    def _of_zones(self, weights: Mapping[str, int], number: int) -> Iterator[Weighed]:
        zones: dict[str, set[str]] = {}
        for name in weights if number else ():
            zones.setdefault(self.ledger.nodes[name].zone, set()).add(name)
        if number < 1 or number >= len(zones) or "" in zones:
            return
        weighed = sorted(((sum(weights[name] for name in names), zone) for zone, names in zones.items()), reverse=True)
        if number == 1:
            for weight, zone in weighed:
                yield Weighed(weight, RoomLoss(frozenset(zones[zone]), zone))
            return
        for lost in _heaviest_sets({zone: weight for weight, zone in weighed}, number):
            nodes = frozenset(name for zone in lost for name in zones[zone])
            yield Weighed(sum(weights[name] for name in nodes), RoomLoss(nodes, " and ".join(sorted(lost))))

    def reserve(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource must stay free."""
        offered = sum((self.ledger.nodes[name].allocatable or {}).get(resource, 0) for name in self.open(view))
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
    """Yield the heaviest sets of so many names, the heaviest first. The next one replaces one name by the next lighter."""
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
            if place + 1 < (places[index + 1] if index + 1 < number else len(names)) and following not in known:
                known.add(following)
                heapq.heappush(queue, weighed(following))


def _preemptible(sums: NodeSums, view: RoomView) -> Counter[str]:
    """Return what pods hold that VMs of the highest priority could shut down."""
    found: Counter[str] = Counter()
    for priority, by_role in sums.preemptible.items() if view.highest is not None else ():
        for role, amounts in by_role.items():
            if (
                view.highest is not None
                and priority < view.highest
                and not (view.everything and role is Role.CONTROLLED)
            ):
                found.update(amounts)
    return found


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
    return Room(ledger, vms, {key: each for key, each in computed.items() if each[1].role is Role.RETURNS})


def _computed(vms: VmLedger, cluster: Cluster) -> Iterator[tuple[tuple[str, str], tuple[str, Shape]]]:
    """Yield the VMIs that have no pod, in the size that KubeVirt computes. One whose size cannot be determined counts as
    nothing: a shortage stays certain without it."""
    for namespace, name in vms.without_pod():
        check_time()
        try:
            vmi = cluster.get(VMI, namespace, name)
        except Unseen:
            continue
        given = expand(vmi, cluster) if vmi is not None else None
        if given is not None and not given.unseen:
            requests = as_requests(launcher_resources.pod(given, cluster).requests)
            role = Role.RETURNS if vms.starts_again(namespace, name) else Role.STAYS
            priority = HIGHEST if role is Role.STAYS or given.spec["priorityClassName"].text else 0
            yield (namespace, name), (vms.node_of(namespace, name), Shape(role, requests, priority))
