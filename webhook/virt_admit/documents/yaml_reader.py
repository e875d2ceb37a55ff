"""YAML to trees, from the events of PyYAML's parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from virt_admit.documents.plain_yaml import NotPlainError, PlainReader
from virt_admit.documents.tree import (
    MAX_DEPTH,
    MarkupError,
    Repeated,
    Span,
    SpanPositions,
    Tree,
    may_hold_objects,
    too_deep,
)
from virt_admit.documents.yaml_scalars import COLLECTION_TAGS, MERGE_TAG, scalar
from virt_admit.model.kubernetes.units import show

MAX_COPIES: Final = 100_000
"""Limit for values copied through aliases in one portion of a file. A few lines of nested aliases
can expand to billions.
"""

MAX_COPIED_TEXT: Final = 4 << 20
"""Limit for the characters of these values: a document that is packed has each copy for itself."""


class _PythonParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's parser without libyaml: the same events and marks, ten times slower."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


PARSER: Callable[[str], Any] = (
    yaml.cyaml.CParser  # type: ignore[attr-defined]  # its stub hides it
    if yaml.__with_libyaml__
    else _PythonParser
)

_OPEN: Final = object()  # the value of an anchor whose own content is being read


class YamlReader:
    """Builds trees from the events of one file, part by part."""

    def __init__(self, *, pack: bool = False) -> None:
        self._pack = pack
        self._copies = 0
        self._copied_text = 0
        self._anchors: dict[str, tuple[Any, Span]] = {}
        self._repeated: list[Repeated] = []
        self._next: Callable[[], Any]

    def documents(self, text: str) -> Iterator[Tree]:
        """Yield the documents of a part of the file.

        If asked for, the members of a plain List are packed.

        Raises:
            MarkupError: the rest of the part cannot be parsed.
        """
        try:
            plain = PlainReader(PARSER(text).get_event, self._pack and may_hold_objects(text))
            found = [Tree(*document) for document in plain.documents()]
        except (NotPlainError, MarkupError, yaml.YAMLError):
            return self.any_documents(text)
        return iter(found)

    def any_documents(self, text: str) -> Iterator[Tree]:
        """Yield the documents of a part that is not plain."""
        try:
            self._next = PARSER(text).get_event
            event: Any
            while (event := self._next()).__class__ is not StreamEndEvent:
                if event.__class__ is DocumentStartEvent:
                    self._repeated = []
                    self._anchors = {}
                    value, span = self._node(self._next(), 1)
                    yield Tree(value, SpanPositions(span), self._repeated)
        except yaml.MarkedYAMLError as error:
            raise _error(error, text) from None
        except yaml.reader.ReaderError:
            control = _UNPRINTABLE.search(text)
            offset = control.start() if control else 0
            raise MarkupError(
                f"YAML does not allow the character {show(text[offset])}", offset
            ) from None

    def _node(self, event: Any, depth: int) -> tuple[Any, Span]:
        kind = event.__class__
        if kind is AliasEvent:
            return self._alias(event, depth)
        anchor = event.anchor
        if kind is ScalarEvent:
            result = scalar(event), (event.start_mark.index, event.end_mark.index, None)
        else:
            if depth > MAX_DEPTH:
                raise too_deep(event.start_mark.index)
            if event.tag not in COLLECTION_TAGS:
                raise MarkupError(f"unknown tag {show(event.tag)}", event.start_mark.index)
            if anchor:
                self._anchors[anchor] = _OPEN, (0, 0, None)
            result = (self._map if kind is MappingStartEvent else self._list)(event, depth)
        if anchor:
            self._anchors[anchor] = result
        return result

    def _map(self, opening: Any, depth: int) -> tuple[dict[str, Any], Span]:
        values: dict[str, Any] = {}
        spans: dict[str, Any] = {}
        merged: set[str] = set()
        end = opening.end_mark.index
        following = self._next
        while (event := following()).__class__ is not MappingEndEvent:
            start = event.start_mark.index
            if event.__class__ is ScalarEvent and _merges(event):
                source, span = self._node(following(), depth)
                self._merge(source, span, values, spans, merged)
            else:
                key = self._key(event)
                value, span = self._node(following(), depth + 1)
                if key in spans and key not in merged:
                    self._repeated.append((spans, key, spans[key][0], start))
                merged.discard(key)
                values[key] = value
                spans[key] = start, event.end_mark.index, span
            end = span[1]
        return values, (*_extent(opening, event, end), spans)

    def _list(self, opening: Any, depth: int) -> tuple[list[Any], Span]:
        values: list[Any] = []
        spans: list[Span] = []
        end = opening.end_mark.index
        while (event := self._next()).__class__ is not SequenceEndEvent:
            value, span = self._node(event, depth + 1)
            values.append(value)
            spans.append(span)
            end = span[1]
        return values, (*_extent(opening, event, end), spans)

    def _key(self, event: Any) -> str:
        if event.__class__ is ScalarEvent and not event.anchor:
            key = scalar(event)
        elif event.__class__ in (ScalarEvent, AliasEvent):
            key, _ = self._node(event, 1)
        else:
            raise MarkupError("a key must be text", event.start_mark.index)
        if key.__class__ is not str:
            problem = f"a key must be text, and this one is read as {show(key)}: quote it"
            raise MarkupError(problem, event.start_mark.index)
        return key

    def _alias(self, event: Any, depth: int) -> tuple[Any, Span]:
        """Return a copy of the anchor's value,
        because two fields of an object must not share a value.
        """
        start = event.start_mark.index
        value, span = self._anchors.get(event.anchor, (None, None))
        if span is None:
            raise MarkupError(f"no anchor {show(event.anchor)} is defined before this alias", start)
        if value is _OPEN:
            raise MarkupError(f"the anchor {show(event.anchor)} contains itself", start)
        return self._copy(value, depth, start), (start, event.end_mark.index, span[2])

    def _copy(self, value: Any, depth: int, offset: int) -> Any:
        self._copies += 1
        if self._copies > MAX_COPIES:
            raise MarkupError(f"the aliases repeat more than {MAX_COPIES} values", offset)
        if not isinstance(value, (dict, list)):
            self._count_text(value, offset)
            return value
        if depth > MAX_DEPTH:
            raise too_deep(offset)
        if isinstance(value, dict):
            self._count_text("".join(value), offset)
            return {key: self._copy(item, depth + 1, offset) for key, item in value.items()}
        return [self._copy(item, depth + 1, offset) for item in value]

    def _count_text(self, value: Any, offset: int) -> None:
        self._copied_text += len(value) if isinstance(value, str) else 0
        if self._copied_text > MAX_COPIED_TEXT:
            most = MAX_COPIED_TEXT >> 20
            raise MarkupError(f"the aliases repeat more than {most} MiB of text", offset)

    def _merge(
        self,
        source: Any,
        span: Span,
        values: dict[str, Any],
        spans: dict[str, Any],
        merged: set[str],
    ) -> None:
        """Add the map, or the list of maps, behind ``<<``.

        As in Go, the order of the text counts: merged members replace earlier keys and are replaced
        by later ones. Of several maps the first wins.
        """
        sources = (
            zip(source, span[2], strict=True) if isinstance(source, list) else [(source, span)]
        )
        for each, (_, _, children) in reversed(list(sources)):
            if not isinstance(each, dict):
                raise MarkupError("<< takes a map or a list of maps", span[0])
            values.update(each)
            spans.update(children)
            merged.update(each)


def _merges(key: Any) -> bool:
    """Return whether a key is ``<<`` or, as yq writes it, ``!!merge <<``."""
    return key.value == "<<" and bool(key.implicit[0] or key.tag == MERGE_TAG)


def may_be_object(text: str) -> bool:
    """Return whether a text that cannot be read may be a Kubernetes object.

    False if its syntax is valid and its outermost map lacks ``apiVersion`` or ``kind``, as in files
    of other programs with their own tags (mkdocs.yml) or with numbers as keys (OpenAPI).
    """
    keys, depth, nodes = set(), 0, 0
    try:
        parser = PARSER(text)
        while (event := parser.get_event()).__class__ is not StreamEndEvent:
            if isinstance(event, CollectionEndEvent):
                depth -= 1
            elif isinstance(event, NodeEvent):
                nodes += depth == 1
                if depth == 1 and nodes % 2 and isinstance(event, ScalarEvent):
                    keys.add(event.value)
                depth += isinstance(event, CollectionStartEvent)
            if depth > MAX_DEPTH:  # each event of libyaml takes time in proportion to the depth
                return True
    except yaml.YAMLError:
        return True
    return {"apiVersion", "kind"} <= keys


# YAML 1.1, c-printable
_UNPRINTABLE: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def _extent(opening: Any, closing: Any, last: int) -> tuple[int, int]:
    """Return start and end of a map or list. Without brackets it ends with its last child."""
    return opening.start_mark.index, closing.end_mark.index if opening.flow_style else last


def _error(error: yaml.MarkedYAMLError, text: str) -> MarkupError:
    """Convert PyYAML's error, with a clearer message where possible."""
    mark = error.problem_mark or error.context_mark
    offset = mark.index if mark else 0
    if text[offset : offset + 1] == "\t":
        return MarkupError("YAML does not allow a tab here: use spaces", offset)
    problem = error.problem or error.context or "not YAML"
    both = error.context and error.problem
    return MarkupError(f"{problem} ({error.context})" if both else problem, offset)
