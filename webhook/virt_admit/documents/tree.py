"""What both readers give, and what both refuse."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Half a character, which an escape can write and UTF-8 cannot."""

MAX_DEPTH: Final = 100
"""Maps and lists within each other. Real objects have about 20."""

Span: TypeAlias = tuple[int, int, Any]
"""Where a value begins and ends in its text, as offsets, and its children: for a map ``{key: (begin of key, end of
key, span)}``, for a list its spans, for a scalar None."""

Repeated: TypeAlias = tuple[dict[str, Any], str, int, int]
"""A key that stands twice: the children of its map, the key, the offsets of the first and of the later one."""


class Tree(NamedTuple):
    """One document: its value, where everything stands, and which keys stand twice."""

    value: Any
    span: Span
    repeated: list[Repeated]


class MarkupError(Exception):
    """Something unreadable at an offset of the text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


def too_deep(offset: int) -> MarkupError:
    return MarkupError(f"more than {MAX_DEPTH} maps and lists within each other", offset)


def integral(number: float) -> int | float:
    """What the API server reads: integers as such up to 64 bits, all else as a float."""
    return int(number) if number.is_integer() and abs(number) < 2**63 else number
