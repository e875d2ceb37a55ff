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

The children of a map are ``{key: (start of key, end of key, span)}``, those of a list its spans. A
scalar has None.
"""

Repeated: TypeAlias = tuple[dict[str, Any], str, int, int]
"""A duplicate key: the children of its map, the key,
the offsets of its first and its later occurrence.
"""


class Positions(Protocol):
    """The positions of the values in one document."""

    @property
    def start(self) -> int:
        """The offset at which the document starts."""

    def spans(self, value: Any) -> Span:
        """Return the spans of all values of the document, whose value this is."""

    def find(self, value: Any, path: Iterable[PathStep]) -> tuple[int, int, int]:
        """Return three offsets of a part of this value: where it starts with its key, the end of
        its key, and its end.

        For a path that is not in the document, return those of the nearest map or list around it
        without its children.
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


class PackedMember(NamedTuple):
    """A member of a List as JSON text, which takes a tenth of the memory of its values."""

    content: bytes
    positions: Positions
    """The positions of its values, because those of the List do not have them."""


MEMBER_FIELDS: Final = frozenset({"items", "objects"})
"""The outermost fields whose members may be packed."""


def holder_field(value: dict[str, Any]) -> str | None:
    """Return the field that holds other objects, if the kind has one."""
    kind = value.get("kind")
    if isinstance(kind, str) and kind.endswith("List"):
        return "items"
    group = str(value.get("apiVersion")).partition("/")[0]
    return "objects" if kind == "Template" and group in ("template.openshift.io", "v1") else None


def may_hold_objects(text: str) -> bool:
    """Return whether a text may be a List or a Template, whose members are worth packing."""
    return bool(_HOLDER_KIND.search(text))


def is_wrongly_packed(value: Any) -> bool:
    """Return whether members were packed that belong to an object of another kind,
    which has such a field, too.
    """
    return isinstance(value, dict) and not MEMBER_FIELDS.intersection(value) <= {
        holder_field(value)
    }


_HOLDER_KIND: Final = re.compile(r"""kind["']?\s*:\s*["']?(?:\w*List|Template)\b""")


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
