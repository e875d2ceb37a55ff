"""Sums over the nodes of a ledger that a single change keeps:
a review of an admission webhook looks at no node.

What is kept changes in place, by one thread at a time (``Ledger.derive``). Readers take values that
do not change.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from virt_admit.model.scheduler.ledger import Ledger, NodeSums, Role
from virt_admit.model.scheduler.resources import MEMORY, add


class RoomView(NamedTuple):
    """How the room is counted."""

    everything: bool = False
    """Whether pods of other controllers need a new place too."""
    tolerant: bool = False
    """Whether a VM tolerates the taints of nodes that are closed to others."""
    highest: int | None = None
    """The highest priority of a new VM."""


class Amounts(NamedTuple):
    """One resource on one node."""

    free: int
    needs: int
    """What has to find another place after its loss."""


class RoomTotals(NamedTuple):
    """The sums over all nodes on which VMs may run, by resource."""

    number: int
    """The nodes."""
    free: Mapping[str, int]
    heaviest: Mapping[str, int]
    """An upper bound of what the loss of one node takes of the free room: its own free room,
    and what its VMs need.
    """
    largest: tuple[int, ...]
    """The free memory of the nodes with the most of it, ascending."""
    silent: frozenset[str]
    """The nodes that do not report what they offer."""


ByNode = Mapping[str, Mapping[str, Amounts]]
"""By node and resource. What a node neither offers nor holds is left out."""

NOTHING: Final = Amounts(0, 0)
_LIGHTEST: Final = (0, "")
_DRIFT: Final = 64
"""The heaviest node is searched again once it became lighter by more than one part in so many,
because a look at all nodes takes long.
"""
_LARGEST: Final = 32


class RoomSums:
    """The amounts of each node on which VMs may run, and their sums."""

    def __init__(self, view: RoomView) -> None:
        self._view = view
        self._nodes: dict[str, Mapping[str, Amounts]] = {}
        self._free: dict[str, int] = {}
        self._heaviest: dict[str, tuple[int, str]] = {}
        self._memory: list[int] = []
        """The free memory of each node, ascending."""
        self._silent: frozenset[str] = frozenset()

    @property
    def totals(self) -> RoomTotals:
        """What a review asks for first."""
        heaviest = {resource: most for resource, (most, _) in self._heaviest.items()}
        return RoomTotals(
            len(self._nodes),
            dict(self._free),
            heaviest,
            tuple(self._memory[-_LARGEST:]),
            self._silent,
        )

    @property
    def by_node(self) -> tuple[RoomTotals, ByNode]:
        """The same with the amounts of every node: their copy takes as long as there are nodes."""
        return self.totals, dict(self._nodes)

    def copy(self) -> RoomSums:
        """Return a copy that changes alone."""
        other = RoomSums(self._view)
        other._nodes, other._free, other._silent = dict(self._nodes), dict(self._free), self._silent
        other._heaviest, other._memory = dict(self._heaviest), list(self._memory)
        return other

    def follow(self, ledger: Ledger, changed: Collection[str]) -> None:
        """Take over what some nodes offer or hold now."""
        silent, searched = set(self._silent.difference(changed)), set()
        for name in changed:
            before, after = self._nodes.pop(name, None), _amounts(name, ledger, self._view)
            self._count(before, after)
            if after is not None:
                self._nodes[name] = after
            if after == {}:
                silent.add(name)
            counts = after is not None and can_be_lost(name, ledger)
            for resource in {**(before or {}), **(after or {})}:
                each = after.get(resource, NOTHING) if after is not None and counts else NOTHING
                weight, (most, heaviest) = (
                    each.free + each.needs,
                    self._heaviest.get(resource, _LIGHTEST),
                )
                if weight >= most:
                    self._heaviest[resource] = weight, name
                elif heaviest == name and most - weight > most // _DRIFT:
                    searched.add(resource)
        self._silent = frozenset(silent)
        for resource in searched:
            weights = weights_of(resource, self._nodes, ledger)
            self._heaviest[resource] = max(
                ((weight, name) for name, weight in weights.items()), default=_LIGHTEST
            )

    def _count(
        self, before: Mapping[str, Amounts] | None, after: Mapping[str, Amounts] | None
    ) -> None:
        free, memory = self._free, self._memory
        if before is not None:
            for resource, each in before.items():
                free[resource] -= each.free
            del memory[bisect.bisect_left(memory, before.get(MEMORY, NOTHING).free)]
        if after is not None:
            for resource, each in after.items():
                free[resource] = free.get(resource, 0) + each.free
            bisect.insort(memory, after.get(MEMORY, NOTHING).free)


def can_be_lost(name: str, ledger: Ledger) -> bool:
    """Return whether a node is in service."""
    node = ledger.nodes.get(name)  # an informer may just have removed it
    return node is not None and node.can_be_lost


def weights_of(resource: str, by_node: ByNode, ledger: Ledger) -> dict[str, int]:
    """Return what the loss of each node that can be lost takes of the free room."""
    found = {}
    for name, amounts in by_node.items():
        if can_be_lost(name, ledger):
            each = amounts.get(resource, NOTHING)
            found[name] = each.free + each.needs
    return found


def _amounts(name: str, ledger: Ledger, view: RoomView) -> Mapping[str, Amounts] | None:
    """Return the amounts of a node by resource, empty: it does not report what it offers; None: it
    does not exist, or no VM may run there.
    """
    node = ledger.nodes.get(name)
    if node is None or not node.hosts_vms:
        return None
    sums = ledger.sums(name)
    if node.is_closed and not view.tolerant and Role.RETURNS not in sums.by_role:
        return None
    if node.allocatable is None:
        return {}
    needs = dict(sums.by_role.get(Role.RETURNS, {}))
    if view.everything:
        add(needs, sums.by_role.get(Role.CONTROLLED, {}))
    free = dict(node.allocatable)
    for amounts in sums.by_role.values():
        for resource, amount in amounts.items():
            free[resource] = free.get(resource, 0) - amount
    add(free, _preemptible(sums, view))
    return {
        resource: Amounts(max(0, amount), needs.get(resource, 0))
        for resource, amount in free.items()
    }


def _preemptible(sums: NodeSums, view: RoomView) -> Mapping[str, int]:
    """Return what pods hold that VMs of the highest priority could shut down."""
    found: dict[str, int] = {}
    if view.highest is None:
        return found
    for priority, by_role in sums.preemptible.items():
        for role, amounts in by_role.items() if priority < view.highest else ():
            if not (view.everything and role is Role.CONTROLLED):
                add(found, amounts)
    return found


class VmDemands:
    """What the VMs that return demand of nodes, besides room."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int | None, bool]] = {}
        self._numbers: Counter[tuple[int | None, bool]] = Counter()
        """The nodes with the same demand. A cluster has few different ones."""

    def follow(self, ledger: Ledger, changed: Collection[str]) -> None:
        """Take over what the VMs of some nodes demand now."""
        for name in changed:
            before = self._nodes.pop(name, None)
            if before is not None:
                self._numbers[before] -= 1
                if not self._numbers[before]:
                    del self._numbers[before]
            if not name or name in ledger.nodes:
                sums = ledger.sums(name)
                after = self._nodes[name] = sums.highest, sums.tolerant
                self._numbers[after] += 1

    def copy(self) -> VmDemands:
        """Return a copy that changes alone."""
        other = VmDemands()
        other._nodes, other._numbers = dict(self._nodes), Counter(self._numbers)
        return other

    @property
    def every(self) -> tuple[tuple[int | None, bool], ...]:
        """The highest priority of VMs, and whether they tolerate lasting taints,
        as different nodes have them.
        """
        return tuple(self._numbers)
