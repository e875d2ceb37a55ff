"""What the pods of each node request, as counts of shapes that single events change:
no pod is read twice.

A cluster has 100,000 pods and few shapes of them. One thread writes at a time. Readers need no
lock: the counts of a node are replaced as a whole, and its sums are derived from them when they are
asked for.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from virt_admit.model.scheduler.node_labels import is_transient
from virt_admit.model.scheduler.resources import PODS, Resources
from virt_admit.model.scheduler.snapshot import Node

T = TypeVar("T")
F = TypeVar("F", bound="Follower")


class Follower(Protocol):
    """A value that is kept by the changes of nodes."""

    def follow(self, ledger: Ledger, changed: Collection[str]) -> None:
        """Take over the state of these nodes.

        Some of them may not exist (any more), and the empty name stands for pods without a node.
        """

    def copy(self) -> Follower:
        """Return a copy that changes alone."""


_MOST_DERIVED: Final = 200
_MOST_CHANGES: Final = 10_000
"""The changes that are kept. A value that has missed more of them is computed again."""
_IN_USE: Final = 1_000
"""A value that was read so many changes ago follows when it is read again."""


class _Derived(NamedTuple):
    """A ``Follower`` with the generation that it has followed, and that of its last reading."""

    generation: int
    read_at: int
    value: Any


class Role(enum.IntEnum):
    """What becomes of a pod when its node is lost."""

    RETURNS = 0
    """The launcher pod of a VM that starts again on another node."""
    CONTROLLED = 1
    """A controller creates another one, such as a ReplicaSet."""
    STAYS = 2
    """It ends with its node: pods of DaemonSets, mirror pods, VMs that stay off."""


class Shape(NamedTuple):
    """What a pod takes of its node. A cluster has tens of them."""

    role: Role
    requests: tuple[tuple[str, int], ...]
    """Positive amounts, sorted by resource, without the pod itself."""
    priority: int = 0
    tolerant: bool = False
    """Whether it tolerates more than the taints that every pod tolerates for a while."""


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """What the ledger keeps of a node."""

    allocatable: Resources | None
    """None: the node does not report it."""
    hosts_vms: bool
    can_be_lost: bool
    """Whether it is in service. A drain empties a cordoned node,
    and a node that is not Ready may be lost already.
    """
    is_closed: bool
    """Whether a lasting taint keeps ordinary VMs off."""
    zone: str = ""


ZONE: Final = "topology.kubernetes.io/zone"


def ledger_node(node: Node, *, hosts_vms: bool) -> LedgerNode:
    """Return what the ledger keeps of a node as kube-scheduler sees it."""
    return LedgerNode(
        node.allocatable,
        hosts_vms,
        can_be_lost=node.ready and not node.cordoned,
        is_closed=any(not is_transient(taint) for taint in node.taints),
        zone=str(node.labels.get(ZONE) or ""),
    )


class NodeSums(NamedTuple):
    """What the pods of a node request together, each with ``pods``: their number."""

    by_role: Mapping[Role, Resources]
    preemptible: Mapping[int, Mapping[Role, Resources]]
    """The pods that are not returning VMs, by priority: VMs of a higher one may replace them."""
    highest: int | None
    """The highest priority of a VM that returns; None: there is none."""
    tolerant: bool
    """Whether a VM that returns tolerates lasting taints."""

    def of(self, resource: str) -> int:
        """Return how much of a resource all pods request."""
        return sum(amounts.get(resource, 0) for amounts in self.by_role.values())


EMPTY: Final[Mapping[Shape, int]] = {}


class Ledger:
    """Nodes, and how many pods of each shape they hold.

    Pods without a node are under the empty name.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, LedgerNode] = {}
        self._held: dict[str, Mapping[Shape, int]] = {}
        self._sums: dict[str, tuple[Mapping[Shape, int], NodeSums]] = {}
        self._log: tuple[int, list[str]] = 0, []
        """The node of each change since a generation. Both are replaced together."""
        self._derived: dict[Hashable, _Derived] = {}
        """What follows the changes, by key. Who changes a value takes it out meanwhile."""

    @property
    def generation(self) -> int:
        """A counter of the changes."""
        first, changed = self._log
        return first + len(changed)

    def set_node(self, name: str, node: LedgerNode | None) -> None:
        """Replace a node; None: it does not exist."""
        if node == self.nodes.get(name):
            return
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
        self._note(name)

    def add(self, node: str, shape: Shape, number: int = 1) -> None:
        """Add pods of a shape to a node, or remove them (a negative number)."""
        counts = dict(self._held.get(node, EMPTY))
        counts[shape] = counts.get(shape, 0) + number
        if not counts[shape]:
            del counts[shape]
        if counts:
            self._held[node] = counts
        else:
            self._held.pop(node, None)
            self._sums.pop(node, None)
        self._note(node)

    def _note(self, node: str) -> None:
        """Record a change, after it was made: who reads the generation first never misses one."""
        first, changed = self._log
        changed.append(node)
        if len(changed) > _MOST_CHANGES:
            self._log = first + len(changed), []

    def derive(self, key: Hashable, make: Callable[[], F], read: Callable[[F], T]) -> T:
        """Return what is read of a value that follows the changes of nodes:
        a change costs what is on one node.

        Args:
            key: names the value, with everything that it depends on.
            make: makes the value without nodes.
            read: returns something that later changes leave as it is.
        """
        # meanwhile no other thread has it, and one makes its own
        known = self._derived.pop(key, None)
        current = self._caught_up(known) if known is not None else None
        if current is None:
            current = _Derived(self.generation, 0, make())
            current.value.follow(self, ("", *tuple(self.nodes)))
        found: T = read(current.value)
        if len(self._derived) >= _MOST_DERIVED:  # users choose the names of resources
            self._derived.clear()
        self._derived[key] = current._replace(read_at=current.generation)
        return found

    def keep_up(self) -> None:
        """Let what was read not long ago follow the changes now: the next reader does not wait."""
        generation = self.generation
        for key in tuple(self._derived):
            known = self._derived.pop(key, None)
            if known is not None:
                current = self._caught_up(known) if generation - known.read_at < _IN_USE else known
                if current is not None:
                    self._derived[key] = current

    def _caught_up(self, known: _Derived) -> _Derived | None:
        """Return a value that has followed all changes; None: it missed too many of them."""
        first, changed = self._log
        generation, then = first + len(changed), known.generation
        if then < first:
            return None
        if then < generation:
            known.value.follow(self, set(changed[then - first : generation - first]))
        return known._replace(generation=generation)

    def held(self, node: str) -> Mapping[Shape, int]:
        """Return the number of pods of each shape on a node."""
        return self._held.get(node, EMPTY)

    def sums(self, node: str) -> NodeSums:
        """Return what the pods of a node request together; computed again only if they changed."""
        held = self._held.get(node, EMPTY)
        known = self._sums.get(node)
        if known is None or known[0] is not held:
            known = self._sums[node] = held, _sums(held)
        return known[1]

    def occupied(self) -> Iterator[tuple[str, Mapping[Shape, int]]]:
        """Yield the nodes that hold pods, with the number of each shape."""
        yield from tuple(self._held.items())

    def copy(self) -> Ledger:
        """Return a copy that changes alone."""
        other = Ledger()
        for key in tuple(self._derived):
            known = self._derived.pop(key, None)  # as in ``derive``
            if known is not None:
                other._derived[key] = known._replace(value=known.value.copy())
                self._derived[key] = known
        # In this order: nodes that change meanwhile are in the log, so that what was derived before
        # follows them
        other.nodes, other._held, other._sums = dict(self.nodes), dict(self._held), dict(self._sums)
        other._log = self._log[0], list(self._log[1])
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and (self.nodes, self._held) == (other.nodes, other._held)

    __hash__ = None  # type: ignore[assignment]


def _sums(held: Mapping[Shape, int]) -> NodeSums:
    by_role: dict[Role, dict[str, int]] = {}
    preemptible: dict[int, dict[Role, dict[str, int]]] = {}
    highest, tolerant = None, False
    for shape, number in held.items():
        totals = [by_role.setdefault(shape.role, {})]
        if shape.role is Role.RETURNS:
            highest = shape.priority if highest is None else max(highest, shape.priority)
            tolerant = tolerant or shape.tolerant
        else:
            totals.append(preemptible.setdefault(shape.priority, {}).setdefault(shape.role, {}))
        for total in totals:
            total[PODS] = total.get(PODS, 0) + number
            for resource, amount in shape.requests:
                total[resource] = total.get(resource, 0) + amount * number
    return NodeSums(by_role, preemptible, highest, tolerant)


def as_requests(amounts: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return amounts as they are in a shape."""
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount > 0))
