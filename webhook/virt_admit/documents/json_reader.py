"""JSON to trees."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from virt_admit.documents.plain_yaml import packed_member
from virt_admit.documents.tree import (
    MAX_DEPTH,
    MEMBER_FIELDS,
    SURROGATE,
    MarkupError,
    Repeated,
    Span,
    SpanPositions,
    Tree,
    integral,
    is_wrongly_packed,
    may_hold_objects,
    too_deep,
)

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"([^"\\\x00-\x1f]*)(\\.[^"\\\x00-\x1f]*)*"')
_ATOM: Final = re.compile(
    r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|true|false|null|NaN|-?Infinity"
)
_ATOMS: Final = {"true": True, "false": False, "null": None}


class NotJsonError(Exception):
    """The text is not JSON; it may be YAML in flow style."""


class JsonReader:
    """Builds trees from consecutive JSON texts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._repeated: list[Repeated] = []
        self._pack = may_hold_objects(text)

    def document(self) -> Tree:
        """Return the value at this position with its spans.

        The members of a List without duplicate keys are packed.

        Raises:
            NotJsonError: the text is not JSON.
            MarkupError: the text is JSON that the API server would reject.
        """
        start, self._repeated = self.position, []
        value, span = self._value(1)
        if self._pack and (self._repeated or is_wrongly_packed(value)):
            self.position, self._repeated, self._pack = start, [], False
            value, span = self._value(1)
            self._pack = True
        return Tree(value, SpanPositions(span), self._repeated)

    def space(self) -> int:
        """Skip white space and return the new position."""
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.position

    def _value(self, depth: int) -> tuple[Any, Span]:
        start = self.space()
        first = self.text[start : start + 1]
        if first == '"':
            return self._string(), (start, self.position, None)
        if first in ("{", "["):
            if depth > MAX_DEPTH:
                raise too_deep(start)
            self.position += 1
            return self._map(start, depth) if first == "{" else self._list(start, depth)
        match = _ATOM.match(self.text, start)
        if not match:
            raise NotJsonError
        self.position = match.end()
        return self._atom(match), (start, self.position, None)

    def _map(self, start: int, depth: int) -> tuple[dict[str, Any], Span]:
        values: dict[str, Any] = {}
        spans: dict[str, Any] = {}
        more = not self._take("}")
        while more:
            key_start = self.space()
            key = self._string()
            key_end = self.position
            if not self._take(":"):
                raise NotJsonError
            packs = self._pack and depth == 1 and key in MEMBER_FIELDS and self._take("[")
            value, span = (
                self._list(self.position - 1, 2, pack=True) if packs else self._value(depth + 1)
            )
            if key in spans:
                self._repeated.append((spans, key, spans[key][0], key_start))
            values[key] = value
            spans[key] = key_start, key_end, span
            more = self._more("}")
        return values, (start, self.position, spans)

    def _list(self, start: int, depth: int, *, pack: bool = False) -> tuple[list[Any], Span]:
        values: list[Any] = []
        spans: list[Span] = []
        more = not self._take("]")
        while more:
            value, span = self._value(depth + 1)
            if pack and isinstance(value, dict):
                value, span = packed_member(value, span), (span[0], span[1], None)
            values.append(value)
            spans.append(span)
            more = self._more("]")
        return values, (start, self.position, spans)

    def _more(self, closing: str) -> bool:
        """Whether a comma follows instead of the end."""
        if self._take(","):
            return True
        if self._take(closing):
            return False
        raise NotJsonError

    def _take(self, character: str) -> bool:
        if self.text[self.space() : self.position + 1] != character:
            return False
        self.position += 1
        return True

    def _string(self) -> str:
        match = _STRING.match(self.text, self.position)
        if not match:
            raise NotJsonError
        start, self.position = self.position, match.end()
        if match[2] is None:
            return match[1]
        try:
            value: str = json.loads(match[0])
        except ValueError:
            raise NotJsonError from None
        if SURROGATE.search(value):
            raise MarkupError("an escape that is half a character (lone surrogate)", start)
        return value

    def _atom(self, match: re.Match[str]) -> Any:
        whole, rest = match.groups()
        if whole is None:
            if match[0] not in _ATOMS:
                raise MarkupError(f"{match[0]} is not a number that JSON has", match.start())
            return _ATOMS[match[0]]
        if not rest and len(whole) <= 20 and -(2**63) <= (number := int(whole)) < 2**63:
            return number
        value = float(match[0])
        if not math.isfinite(value):
            raise MarkupError("a number too large for JSON readers", match.start())
        return integral(value)
