"""Types and checks that both readers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from virt_admit.model.kubernetes.objects import PathStep

SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Half a character, which an escape can express but UTF-8 cannot."""

MAX_DEPTH: Final = 100
"""Maximum nesting of maps and lists. Real objects have about 20 levels."""

Span: TypeAlias = tuple[int, int, Any]
"""Offsets of the start and end of a value in its text, and its children.

The children of a map are ``{key: (start of key, end of key, span)}``, those of a list its spans. A scalar has None.
"""

Repeated: TypeAlias = tuple[dict[str, Any], str, int, int]
"""A duplicate key: the children of its map, the key, the offsets of its first and its later occurrence."""


class Positions(Protocol):
    """The positions of the values in one document."""

    @property
    def start(self) -> int:
        """The offset at which the document starts."""

    def spans(self, value: Any) -> Span:
        """Return the spans of all values of the document, whose value this is."""

    def find(self, value: Any, path: Iterable[PathStep]) -> tuple[int, int, int]:
        """Return three offsets of a part of this value: where it starts with its key, the end of its key, and its end.

        For a path that is not in the document, return those of the nearest map or list around it without its children.
        """


class SpanPositions(NamedTuple):
    """Positions whose spans are known."""

    span: Span

    @property
    def start(self) -> int:
        return int(self.span[0])

    def spans(self, _value: Any) -> Span:
        return self.span

    def find(self, _value: Any, path: Iterable[PathStep]) -> tuple[int, int, int]:
        span = self.span
        start = head = span[0]
        for step in path:
            children = span[2]
            if isinstance(children, dict) and step in children:
                start, head, span = children[step]
            elif isinstance(children, list) and isinstance(step, int) and 0 <= step < len(children):
                span = children[step]
                start = head = span[0]
            else:
                return start, head, head
        return start, head, span[1]


class Tree(NamedTuple):
    """One document: its value, the positions of all parts, and its duplicate keys."""

    value: Any
    positions: Positions
    repeated: Sequence[Repeated] = ()


class MarkupError(Exception):
    """A syntax error at an offset of the text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


def too_deep(offset: int) -> MarkupError:
    return MarkupError(f"more than {MAX_DEPTH} maps and lists within each other", offset)


def integral(number: float) -> int | float:
    """Convert a number as the API server does: integers up to 64 bits, all others as float."""
    return int(number) if number.is_integer() and abs(number) < 2**63 else number
