"""Types and checks that both readers share."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

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


class Tree(NamedTuple):
    """One document: its value, the spans of all parts, and its duplicate keys."""

    value: Any
    span: Span
    repeated: list[Repeated]


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
