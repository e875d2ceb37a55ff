"""Text to values: YAML as kubectl reads it, and JSON, with the place of every value.

kubectl turns YAML into JSON with sigs.k8s.io/yaml, whose idea of a plain ``y``, ``0o10`` or ``1e3`` is not PyYAML's.
So values are built here from the events of PyYAML's parser (the C one where it is installed), with rules of our own
for scalars; each was compared with the Go library. JSON is read as JSON, because its escapes are not YAML's.

Texts come from strangers: whatever they say, reading ends, in time and memory linear in their length.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from webhook.model.units import show

MAX_DEPTH: Final = 100
"""Maps and lists within each other. Real objects have about 20."""

MAX_COPIES: Final = 100_000
"""Values in one file that aliases repeat: a few lines of aliases of aliases can stand for billions."""

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


# --- YAML --------------------------------------------------------------------------------------------------------


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

    def __init__(self) -> None:
        self._copies = 0
        self._anchors: dict[str, tuple[Any, Span]] = {}
        self._repeated: list[Repeated] = []
        self._next: Callable[[], Any]

    def documents(self, text: str) -> Iterator[Tree]:
        """The documents in a part of the file.

        Raises:
            MarkupError: it cannot be read from there on.
        """
        try:
            self._next = PARSER(text).get_event
            event: Any
            while (event := self._next()).__class__ is not StreamEndEvent:
                if event.__class__ is DocumentStartEvent:
                    self._repeated = []
                    self._anchors = {}
                    yield Tree(*self._node(self._next(), 1), self._repeated)
        except yaml.MarkedYAMLError as error:
            raise _error(error, text) from None
        except yaml.reader.ReaderError:
            control = _UNPRINTABLE.search(text)
            offset = control.start() if control else 0
            raise MarkupError(f"YAML does not allow the character {show(text[offset])}", offset) from None

    def _node(self, event: Any, depth: int) -> tuple[Any, Span]:
        kind = event.__class__
        if kind is AliasEvent:
            return self._alias(event, depth)
        anchor = event.anchor
        if kind is ScalarEvent:
            result = _scalar(event), (event.start_mark.index, event.end_mark.index, None)
        else:
            if depth > MAX_DEPTH:
                raise _too_deep(event.start_mark.index)
            if event.tag not in _COLLECTION_TAGS:
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
            if event.__class__ is ScalarEvent and event.value == "<<" and event.implicit[0]:
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
            key = _scalar(event)
        elif event.__class__ in (ScalarEvent, AliasEvent):
            key, _ = self._node(event, 1)
        else:
            raise MarkupError("a key must be text", event.start_mark.index)
        if key.__class__ is not str:
            problem = f"a key must be text, and this one is read as {show(key)}: quote it"
            raise MarkupError(problem, event.start_mark.index)
        return key

    def _alias(self, event: Any, depth: int) -> tuple[Any, Span]:
        """A copy of what the anchor stands for: nobody expects two fields of an object to be one."""
        start = event.start_mark.index
        value, span = self._anchors.get(event.anchor, (None, None))
        if span is None:
            raise MarkupError(f"no anchor {show(event.anchor)} stands before this alias", start)
        if value is _OPEN:
            raise MarkupError(f"the anchor {show(event.anchor)} contains itself", start)
        return self._copy(value, depth, start), (start, event.end_mark.index, span[2])

    def _copy(self, value: Any, depth: int, offset: int) -> Any:
        self._copies += 1
        if self._copies > MAX_COPIES:
            raise MarkupError(f"the aliases of this file repeat more than {MAX_COPIES} values", offset)
        if not isinstance(value, (dict, list)):
            return value
        if depth > MAX_DEPTH:
            raise _too_deep(offset)
        if isinstance(value, dict):
            return {key: self._copy(item, depth + 1, offset) for key, item in value.items()}
        return [self._copy(item, depth + 1, offset) for item in value]

    def _merge(self, source: Any, span: Span, values: dict[str, Any], spans: dict[str, Any], merged: set[str]) -> None:
        """Add the map, or the list of maps, behind ``<<``. As in Go, the order of the text counts: what is merged
        replaces the keys before it and yields to those after it. Of several maps the first wins."""
        sources = zip(source, span[2], strict=True) if isinstance(source, list) else [(source, span)]
        for each, (_, _, children) in reversed(list(sources)):
            if not isinstance(each, dict):
                raise MarkupError("<< takes a map or a list of maps", span[0])
            values.update(each)
            spans.update(children)
            merged.update(each)


# YAML 1.1, c-printable
_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _extent(opening: Any, closing: Any, last: int) -> tuple[int, int]:
    """Where a map or list begins and ends. What has no bracket ends with its last child, not before the next token."""
    return opening.start_mark.index, closing.end_mark.index if opening.flow_style else last


def _too_deep(offset: int) -> MarkupError:
    return MarkupError(f"more than {MAX_DEPTH} maps and lists within each other", offset)


def _error(error: yaml.MarkedYAMLError, text: str) -> MarkupError:
    """PyYAML's error in our words, where it can be said better."""
    mark = error.problem_mark or error.context_mark
    offset = mark.index if mark else 0
    if text[offset : offset + 1] == "\t":
        return MarkupError("a tab stands where YAML takes only spaces", offset)
    problem = error.problem or error.context or "not YAML"
    return MarkupError(f"{problem} ({error.context})" if error.context and error.problem else problem, offset)


# --- YAML scalars, as go.yaml.in/yaml/v2 resolves them ------------------------------------------------------------

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_INTEGER: Final = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|(0[0-7]+)|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?")
_NOT_JSON: Final = re.compile(r"[+-]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_INTEGER: Final = 100  # characters; 64 bits have at most 64 digits

_TAG: Final = "tag:yaml.org,2002:"
_COLLECTION_TAGS: Final = (None, "!", f"{_TAG}map", f"{_TAG}seq")
_TEXT_TAGS: Final = ("!", f"{_TAG}str", f"{_TAG}timestamp")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.tag is not None:
        return _tagged(event, text)
    if event.implicit[0]:
        return _plain(text, event)
    if event.style == '"' and _SURROGATE.search(text):  # libyaml refuses such escapes, the parser in Python does not
        raise MarkupError("an escape that is no character", event.start_mark.index)
    return text


def _plain(text: str, event: Any) -> Any:
    word = _WORDS.get(text, text)
    if word is text and text[0] in "+-.0123456789":
        return _number(text, event)
    return word


def _number(text: str, event: Any) -> int | float | str:
    """The number that a plain scalar is, or the text itself."""
    digits = text if text[0] == "." else text.replace("_", "")
    match = _INTEGER.fullmatch(digits)
    if match and len(digits) <= _LONGEST_INTEGER:
        number = int(digits, 8 if match[1] else 0)
        if -(2**63) <= number < 2**63:
            return number
        if number < 2**64 and digits[0] not in "+-":
            return float(number)
    try:
        value = float(digits) if _FLOAT.fullmatch(digits.replace("_", "")) else math.inf
    except ValueError:  # an underscore that is not between digits
        return text
    if math.isfinite(value):
        return _integral(value)
    if _NOT_JSON.fullmatch(text):
        raise MarkupError(f"{text} is not a number that JSON has", event.start_mark.index)
    return text


def _integral(number: float) -> int | float:
    """What the API server reads: integers as such up to 64 bits, all else as a float."""
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


def _tagged(event: Any, text: str) -> Any:
    tag = event.tag
    if tag in _TEXT_TAGS:
        return text
    if tag == f"{_TAG}binary":
        try:
            return base64.b64decode(text.replace("\n", ""), validate=True).decode("utf-8", "replace")
        except ValueError:
            raise MarkupError(f"{show(text)} is not base64", event.start_mark.index) from None
    types = _TYPES.get(tag)
    if types is None:
        raise MarkupError(f"unknown tag {show(tag)}", event.start_mark.index)
    value = _plain(text, event)
    if type(value) not in types:
        raise MarkupError(f"{show(text)} is not a value of !!{tag.removeprefix(_TAG)}", event.start_mark.index)
    return value


# --- JSON --------------------------------------------------------------------------------------------------------

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"([^"\\\x00-\x1f]*)(\\.[^"\\\x00-\x1f]*)*"')
_ATOM: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|true|false|null|NaN|-?Infinity")
_ATOMS: Final = {"true": True, "false": False, "null": None}


class NotJsonError(Exception):
    """Not JSON; perhaps YAML in flow style."""


class JsonReader:
    """Builds trees from JSON texts that stand one behind the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._repeated: list[Repeated] = []

    def document(self) -> Tree:
        """The value at this position, and its place.

        Raises:
            NotJsonError: there is none.
            MarkupError: there is one that must not be.
        """
        self._repeated = []
        return Tree(*self._value(1), self._repeated)

    def space(self) -> int:
        """Skip white space; the new position."""
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
                raise _too_deep(start)
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
            value, span = self._value(depth + 1)
            if key in spans:
                self._repeated.append((spans, key, spans[key][0], key_start))
            values[key] = value
            spans[key] = key_start, key_end, span
            more = self._more("}")
        return values, (start, self.position, spans)

    def _list(self, start: int, depth: int) -> tuple[list[Any], Span]:
        values: list[Any] = []
        spans: list[Span] = []
        more = not self._take("]")
        while more:
            value, span = self._value(depth + 1)
            values.append(value)
            spans.append(span)
            more = self._more("]")
        return values, (start, self.position, spans)

    def _more(self, closing: str) -> bool:
        """Whether a comma, and not the end, follows."""
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
        if _SURROGATE.search(value):
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
        return _integral(value)
