"""Consecutive items in batches: the work of a process, or what is parsed together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batches(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield consecutive items in batches of at least this size;
    only the last one may be smaller.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= least:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
