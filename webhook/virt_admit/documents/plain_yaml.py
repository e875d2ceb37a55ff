"""The usual YAML, without anchors, merge keys and duplicate keys: values,
and offsets in document order.

A manifest has hundreds of values and few findings. Recording two numbers for each value takes less
time and a tenth of the memory of a tree of spans, and the order of the keys tells which numbers
belong to which value.
"""

from __future__ import annotations

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

from virt_admit.documents.tree import (
    MAX_DEPTH,
    MEMBER_FIELDS,
    PackedMember,
    Span,
    SpanPositions,
    is_wrongly_packed,
)
from virt_admit.documents.yaml_scalars import COLLECTION_TAGS, plain, scalar
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.objects import PathStep

MANY: Final = 20
"""The number of searches from which on building the spans takes less time."""


class NotPlainError(Exception):
    """The text has anchors, merge keys, duplicate keys or an error: it takes ``YamlReader``."""


class OffsetPositions:
    """The offsets of the values of one document: start and end of each key and value,
    in document order.

    The numbers of a map or a list are followed by the index after its last child.
    """

    __slots__ = ("_base", "_finds", "_offsets", "_spans")

    def __init__(self, offsets: array[int], base: int = 0) -> None:
        self._offsets = offsets
        self._base = base  # where these numbers began when their indices were recorded
        self._finds = 0
        self._spans: SpanPositions | None = None

    @property
    def start(self) -> int:
        return self._offsets[0]

    def spans(self, value: Any) -> Span:
        return _span(value, iter(self._offsets))

    def find(self, value: Any, path: Iterable[PathStep]) -> tuple[int, int, int]:
        """Return the offsets of a part of a value, as ``SpanPositions.find`` does.

        One search passes all values before it. So many searches build the spans first, and the
        total stays linear.
        """
        self._finds += 1
        if self._finds == MANY:
            self._spans = SpanPositions(self.spans(value))
        return self._spans.find(value, path) if self._spans else self._find(value, path)

    def _find(self, value: Any, path: Iterable[PathStep]) -> tuple[int, int, int]:
        offsets, at = self._offsets, 0
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
            at = self._offsets[at + 2] - self._base if isinstance(value, (dict, list)) else at + 2
        return at


def _span(value: Any, offsets: Iterator[int]) -> Span:
    start, end = next(offsets), next(offsets)
    if not isinstance(value, (dict, list)):
        return start, end, None
    next(offsets)
    if isinstance(value, dict):
        return (
            start,
            end,
            {
                key: (next(offsets), next(offsets), _span(item, offsets))
                for key, item in value.items()
            },
        )
    return (
        start,
        end,
        [_NO_SPAN if isinstance(item, PackedMember) else _span(item, offsets) for item in value],
    )


_NO_SPAN: Final = (0, 0, None)


def packed_member(value: Any, span: Span) -> PackedMember:
    """Return a value whose spans are known in the form that takes the least memory."""
    offsets = array("I")
    _flatten(span, offsets)
    return PackedMember(json_codec.dumps(value), OffsetPositions(offsets))


def _flatten(span: Span, offsets: array[int]) -> None:
    start, end, children = span
    offsets.extend((start, end))
    if children is None:
        return
    at = len(offsets)
    offsets.append(0)
    if isinstance(children, dict):
        for key_start, key_end, child in children.values():
            offsets.extend((key_start, key_end))
            _flatten(child, offsets)
    else:
        for child in children:
            _flatten(child, offsets)
    offsets[at] = len(offsets)


class PlainReader:
    """Reads the values of one text from the events of PyYAML's parser."""

    def __init__(self, next_event: Callable[[], Any], pack: bool = False) -> None:
        self._next = next_event
        self._pack = pack

    def documents(self) -> Iterator[tuple[Any, OffsetPositions]]:
        """Yield the value of each document with its positions.

        Raises:
            NotPlainError: the text needs the other reader.
            YAMLError, MarkupError: the text has an error, which the other reader explains.
        """
        while (event := self._next()).__class__ is not StreamEndEvent:
            if event.__class__ is DocumentStartEvent:
                offsets = array("I")  # 32 bits count four billion characters
                value = self._value(offsets)
                if self._pack and is_wrongly_packed(value):
                    raise NotPlainError
                yield value, OffsetPositions(offsets)

    def _value(self, offsets: array[int]) -> Any:
        """Return the next value, and record its offsets.

        This loop dominates the time that reading takes, so it calls nothing that it can avoid.
        """
        following, record = self._next, offsets.append
        parents: list[tuple[Any, str | None, int, Any]] = []
        parent: Any
        key: str | None
        opening: Any
        # the innermost open map or list, the key of its next value, its index in the offsets, and
        # its first event
        parent, key, at, opening = None, None, 0, None
        end = 0  # of the last value
        while True:
            event = following()
            kind = event.__class__
            if kind is ScalarEvent and not event.anchor:
                record(event.start_mark.index)
                end = event.end_mark.index
                record(end)
                value = (
                    plain(event.value) if event.implicit[0] and event.tag is None else scalar(event)
                )
                if key is None and parent.__class__ is dict:
                    if value.__class__ is not str or value in parent or value == "<<":
                        raise NotPlainError
                    key = value
                    continue
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                if (key is None and parent.__class__ is dict) or not _is_plain(event, len(parents)):
                    raise NotPlainError
                parents.append((parent, key, at, opening))
                parent = {} if kind is MappingStartEvent else []
                key = None
                at = len(offsets)
                opening = event
                offsets.extend((event.start_mark.index, 0, 0))
                continue
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                if opening.flow_style:  # without brackets a map or list ends with its last child
                    end = event.end_mark.index
                offsets[at + 1] = end
                offsets[at + 2] = len(offsets)
                value, first = parent, at
                parent, key, at, opening = parents.pop()
                value = self._member(value, parents, offsets, first)
            else:
                raise NotPlainError
            if parent is None:
                return value
            if key is None:
                parent.append(value)
            else:
                parent[key] = value
                key = None

    def _member(
        self,
        value: Any,
        parents: list[tuple[Any, str | None, int, Any]],
        offsets: array[int],
        at: int,
    ) -> Any:
        """Return a map or list that has ended,
        packed without its offsets if it is a member of a List.
        """
        if (
            not self._pack
            or len(parents) != 2
            or value.__class__ is not dict
            or not _holds_members(parents[1])
        ):
            return value
        packed = PackedMember(json_codec.dumps(value), OffsetPositions(offsets[at:], at))
        del offsets[at:]
        return packed


def _holds_members(field: tuple[Any, str | None, int, Any]) -> bool:
    """Return whether an outermost field may hold other objects."""
    holder, name, _, _ = field
    return holder.__class__ is dict and name in MEMBER_FIELDS


def _is_plain(opening: Any, depth: int) -> bool:
    """Return whether a map or a list inside so many others is plain."""
    return depth < MAX_DEPTH and not opening.anchor and opening.tag in COLLECTION_TAGS
