"""The usual YAML, without anchors, merge keys and duplicate keys: values, and offsets in document order.

A manifest has hundreds of values and few findings. Recording two numbers for each value takes less time and a tenth of
the memory of a tree of spans, and the order of the keys tells which numbers belong to which value.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from yaml.events import (
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from virt_admit.documents.tree import MAX_DEPTH, Span, SpanPositions
from virt_admit.documents.yaml_scalars import COLLECTION_TAGS, scalar
from virt_admit.model.objects import PathStep

MANY: Final = 20
"""The number of searches from which on building the spans takes less time."""


class NotPlainError(Exception):
    """The text has anchors, merge keys, duplicate keys or an error: it takes ``YamlReader``."""


class Positions:
    """The offsets of the values of one document: start and end of each key and value, in document order.

    The numbers of a map or a list are followed by the index after its last child.
    """

    __slots__ = ("_finds", "_offsets", "_spans", "_value")

    def __init__(self, value: Any, offsets: array[int]) -> None:
        self._value = value
        self._offsets = offsets
        self._finds = 0
        self._spans: SpanPositions | None = None

    @property
    def start(self) -> int:
        return self._offsets[0]

    def find(self, path: Iterable[PathStep]) -> tuple[int, int, int]:
        """Return the offsets of a value, as ``SpanPositions.find`` does.

        One search passes all values before it. So many searches build the spans first, and the total stays linear.
        """
        self._finds += 1
        if self._finds == MANY:
            self._spans = SpanPositions(self.span)
        return self._spans.find(path) if self._spans else self._find(path)

    def _find(self, path: Iterable[PathStep]) -> tuple[int, int, int]:
        offsets, value, at = self._offsets, self._value, 0
        start = head = offsets[0]
        for step in path:
            if isinstance(value, dict) and step in value:
                at = self._member(value, step, at + 3)
                start, head, at = offsets[at], offsets[at + 1], at + 2
            elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
                at = self._after(value[:step], at + 3)
                start = head = offsets[at]
            else:
                return start, head, head
            value = value[step]
        return start, head, offsets[at + 1]

    def _member(self, value: dict[Any, Any], step: PathStep, at: int) -> int:
        """Return the index of a key in a map whose first key is at this index."""
        for key, child in value.items():
            if key == step:
                break
            at = self._after((child,), at + 2)
        return at

    def _after(self, values: Iterable[Any], at: int) -> int:
        """Return the index after consecutive values."""
        for value in values:
            at = self._offsets[at + 2] if isinstance(value, (dict, list)) else at + 2
        return at

    @property
    def span(self) -> Span:
        return _span(self._value, iter(self._offsets))


def _span(value: Any, offsets: Iterator[int]) -> Span:
    start, end = next(offsets), next(offsets)
    if not isinstance(value, (dict, list)):
        return start, end, None
    next(offsets)
    if isinstance(value, dict):
        return start, end, {key: (next(offsets), next(offsets), _span(item, offsets)) for key, item in value.items()}
    return start, end, [_span(item, offsets) for item in value]


def _marks(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


class PlainReader:
    """Reads the values of one text from the events of PyYAML's parser."""

    def __init__(self, next_event: Callable[[], Any]) -> None:
        self._next = next_event
        self._offsets = array("Q")
        self._end = 0
        """The end of the last value."""

    def documents(self) -> Iterator[tuple[Any, Positions]]:
        """Yield the value of each document with its positions.

        Raises:
            NotPlainError: the text needs the other reader.
            YAMLError, MarkupError: the text has an error, which the other reader explains.
        """
        while (event := self._next()).__class__ is not StreamEndEvent:
            if event.__class__ is DocumentStartEvent:
                self._offsets = array("Q")
                value = self._value(self._next(), 1)
                yield value, Positions(value, self._offsets)

    # these three methods dominate the time that reading takes

    def _value(self, event: Any, depth: int) -> Any:
        kind = event.__class__
        if kind is ScalarEvent:
            if event.anchor:
                raise NotPlainError
            self._end = event.end_mark.index
            self._offsets.append(event.start_mark.index)
            self._offsets.append(self._end)
            return scalar(event)
        if kind is MappingStartEvent:
            return self._map(event, depth)
        if kind is SequenceStartEvent:
            return self._list(event, depth)
        raise NotPlainError

    def _map(self, opening: Any, depth: int) -> dict[str, Any]:
        at = self._open(opening, depth)
        offsets, following = self._offsets, self._next
        values: dict[str, Any] = {}
        while (event := following()).__class__ is not MappingEndEvent:
            if event.__class__ is not ScalarEvent or event.anchor or event.value == "<<":
                raise NotPlainError
            key = scalar(event)
            if key.__class__ is not str or key in values:
                raise NotPlainError
            offsets.extend(_marks(event))
            values[sys.intern(key)] = self._value(following(), depth + 1)
        self._close(at, opening, event)
        return values

    def _list(self, opening: Any, depth: int) -> list[Any]:
        at = self._open(opening, depth)
        values: list[Any] = []
        while (event := self._next()).__class__ is not SequenceEndEvent:
            values.append(self._value(event, depth + 1))
        self._close(at, opening, event)
        return values

    def _open(self, opening: Any, depth: int) -> int:
        if depth > MAX_DEPTH or opening.anchor or opening.tag not in COLLECTION_TAGS:
            raise NotPlainError
        at = len(self._offsets)
        self._end = opening.end_mark.index
        self._offsets.extend((opening.start_mark.index, 0, 0))
        return at

    def _close(self, at: int, opening: Any, closing: Any) -> None:
        """Record the end. Without brackets a map or list ends with its last child."""
        if opening.flow_style:
            self._end = closing.end_mark.index
        self._offsets[at + 1] = self._end
        self._offsets[at + 2] = len(self._offsets)
