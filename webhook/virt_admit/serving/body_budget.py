"""One byte budget for the request bodies that a worker is reading,
so that unfinished bodies cannot exhaust memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

BUDGET: Final = 64 * 1024 * 1024
"""Bytes of all unfinished bodies: nine of the largest. The shipped memory limit is 512 MiB."""


PART: Final = 64 * 1024
"""Bytes from which a part of a body is not extended:
many tiny parts would cost more than their bytes.
"""


class Overloaded(Exception):
    """The body was dropped, because it was the largest when the budget was used up."""


class UnfinishedBody:
    """The bytes of a body that have arrived: parts,
    because one growing buffer leaves holes in the heap.
    """

    def __init__(self, deadline: asyncio.Timeout) -> None:
        self.parts: list[bytearray] = []
        self.size = 0
        self.deadline = deadline
        self.dropped = False


class BodyBudget:
    """The unfinished bodies of all connections.

    A body that fits never waits; the largest is dropped first.
    """

    def __init__(self, limit: int = BUDGET) -> None:
        self.limit = limit
        self.used = 0
        self._bodies: set[UnfinishedBody] = set()

    @contextmanager
    def body(self, deadline: asyncio.Timeout) -> Iterator[UnfinishedBody]:
        """Count a body while the context is open.

        If it is dropped, ``deadline`` expires at once.
        """
        body = UnfinishedBody(deadline)
        self._bodies.add(body)
        try:
            yield body
        finally:
            self._release(body)

    def extend(self, body: UnfinishedBody, part: bytes) -> None:
        """Add a part to a body, and drop the largest bodies while there are too many bytes.

        Raises:
            Overloaded: this body is dropped.
        """
        if not body.dropped:
            if not body.parts or len(body.parts[-1]) >= PART:
                body.parts.append(bytearray())
            body.parts[-1] += part
            body.size += len(part)
            self.used += len(part)
        while self.used > self.limit:
            self._drop(max(self._bodies, key=lambda each: each.size))
        if body.dropped:
            raise Overloaded

    def _drop(self, body: UnfinishedBody) -> None:
        self._release(body)
        body.parts.clear()
        body.dropped = True
        body.deadline.reschedule(asyncio.get_running_loop().time())

    def _release(self, body: UnfinishedBody) -> None:
        if body in self._bodies:
            self._bodies.remove(body)
            self.used -= body.size
