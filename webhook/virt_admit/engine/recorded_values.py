"""The values of a ``RecordedCluster``: what they were computed from,
and when two of them are the same.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import fields, is_dataclass
from itertools import compress, starmap
from operator import is_not
from typing import Any, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.json_codec import identical
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object


class Ambient(enum.Enum):
    """What a value may read besides objects."""

    TIME = "time"
    SERVER_VERSION = "server version"


Read = tuple[Kind, str | None, str | None] | tuple[Kind, str, str, str] | Ambient
"""An object by kind, namespace and name. Without a name: all objects of the namespace, or of the
cluster. With a name alone: whether all objects of the kind are known.
"""


def whole(kind: Kind, namespace: str, name: str) -> Read:
    """Return the read of all fields of one object.

    The other reads are of the fields that are looked up.
    """
    return kind, namespace, name, "whole"


class MappingEntry(NamedTuple):
    """One entry of a value that is a mapping. What uses it rests on this entry alone."""

    function: Callable[[Cluster], Mapping[Any, Any]]
    key: Hashable


class EachObject(NamedTuple):
    """The values of a function for all objects of a kind."""

    function: Callable[[Object], Any]
    kind: Kind


class Value:
    """A computed value, and what it was computed from."""

    __slots__ = ("compute", "error", "key", "reads", "uses", "value")

    def __init__(self, key: Hashable, compute: Callable[[Cluster], Any]) -> None:
        self.key, self.compute = key, compute
        self.value: Any = None
        self.error: Exception | None = None
        """What the computation raised instead."""
        self.reads: set[Read] = set()
        self.uses: dict[Hashable, int] = {}
        """The keys of other values, numbered in the order of their first use."""

    def entry(self, key: Hashable) -> Any:
        """Return one entry of a mapping; for a mapping that could not be made,
        what was raised instead.
        """
        return self.error if self.error is not None else self.value.get(key)

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.value


def same_outcome(before: Value, now: Value) -> bool:
    if before.error is None or now.error is None:
        return before.error is now.error and same(before.value, now.value)
    return type(before.error) is type(now.error) and same(before.error.args, now.error.args)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal for everything that reads them,
    also in the order of their items.

    Objects are the same if their fields are: a look-up may decode the same object several times.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Object):
        return identical(one.data, other.data)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and _same_items(one, other)
    if isinstance(one, dict):
        return (
            len(one) == len(other)
            and _same_items(one, other)
            and _same_items(one.values(), other.values())
        )
    if is_dataclass(one):
        return all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    return bool(one == other)


def _same_items(some: Collection[Any], others: Collection[Any]) -> bool:
    """Return whether equally many items are the same.

    Mostly they are identical, which takes no time to find out.
    """
    return all(starmap(same, compress(zip(some, others, strict=True), map(is_not, some, others))))
