"""Who does equal work on many items: one after another, or several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class InOrder(Protocol):
    """Does work on each item and gives the results in the order of the items, as ``map`` does."""

    def __call__(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]: ...


def first_alone(in_order: InOrder, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield the result for each item; the first is done here,
    so that what they share in a cluster is computed once.
    """
    yield from map(work, items[:1])
    yield from in_order(work, items[1:])
