"""Manifests in files: the objects that kubectl would send, with the position of each field."""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from virt_admit.documents.batches import batches
from virt_admit.documents.tree import (
    MarkupError,
    PackedMember,
    Positions,
    Span,
    SpanPositions,
    Tree,
    holder_field,
)
from virt_admit.documents.yaml_reader import YamlReader, may_be_object
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.objects import Path, PathStep
from virt_admit.model.kubernetes.units import show


class Location(NamedTuple):
    """A range in a file.

    Lines and columns start at 1 and count characters; the end is exclusive.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


class Duplicate(NamedTuple):
    """A key that occurs twice in one map, on ``first_line`` and ``line``.

    The last one wins, as in kubectl.
    """

    path: Path
    first_line: int
    line: int


class DocumentError(Exception):
    """Why a file or one of its documents cannot be read.

    Line and column are 0 if the position is unknown.

    ``is_object`` is False for a document whose syntax is valid, but which has no ``apiVersion`` and
    ``kind``.
    """

    def __init__(
        self, message: str, file: str, line: int = 0, column: int = 0, *, is_object: bool = True
    ) -> None:
        super().__init__(f"{file}:{line}:{column}: {message}" if line else f"{file}: {message}")
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.is_object = is_object

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process send the error: exceptions are pickled with the text alone."""
        what = self.message, self.file, self.line, self.column
        return DocumentError, what, {"is_object": self.is_object}


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One object from a file.

    Members of a List or of an OpenShift Template are separate documents. The List or Template
    itself is a document only if it contains a duplicate key.
    """

    content: dict[str, Any] | bytes = field(repr=False)
    """The object, or its JSON text."""
    file: str
    line: int
    is_object: bool
    """Whether it has ``apiVersion`` and ``kind``."""
    duplicates: tuple[Duplicate, ...]
    part: TextChunk = field(repr=False)
    positions: Positions = field(repr=False)
    """The positions of the object's fields in the text of its part."""

    @property
    def data(self) -> dict[str, Any]:
        """The object. If the document is packed, it is parsed on each use."""
        if isinstance(self.content, dict):
            return self.content
        parsed: dict[str, Any] = json_codec.loads(self.content)
        return parsed

    def packed(self) -> Document:
        """Return the document with the object as JSON text, which takes a tenth of the memory."""
        if isinstance(self.content, bytes):
            return self
        return replace(self, content=json_codec.dumps(self.content))

    @property
    def span(self) -> Span:
        """The span of the object in the text of its part."""
        return self.positions.spans(self.data)

    def location(self, path: Iterable[PathStep]) -> Location:
        """Return the location of a value: a member of a map from its key on,
        an item of a list from its start.

        A path that is not in the file gets the location of the key of the nearest map or list
        around it.
        """
        return self.locations((tuple(path),))[tuple(path)]

    def locations(
        self, paths: Iterable[tuple[PathStep, ...]], data: dict[str, Any] | None = None
    ) -> dict[tuple[PathStep, ...], Location]:
        """Return the locations of several values, as ``location`` does.

        ``data`` is the object if it is at hand.
        """
        data = self.data if data is None else data
        found = {}
        for path in dict.fromkeys(paths):
            start, _, end = self.positions.find(data, path)
            found[path] = self.part.location(start, end)
        return found


_NEWLINE: Final = re.compile("\n")


class TextChunk:
    """A part of a file's text and its offset; converts offsets to lines and columns."""

    __slots__ = ("_breaks", "file", "first_line", "start", "text")

    def __init__(self, file: str, text: str, first_line: int = 1, start: int = 0) -> None:
        self.file = file
        self.text = text
        self.first_line = first_line
        self.start = start
        self._breaks: array[int] | None = None

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character."""
        if self._breaks is None:
            self._breaks = array("I", (match.end() for match in _NEWLINE.finditer(self.text)))
        line = bisect_right(self._breaks, offset)
        return line + self.first_line, offset - (self._breaks[line - 1] if line else 0) + 1

    def location(self, start: int, end: int) -> Location:
        return Location(self.file, *self.place(start), *self.place(end))

    def error(self, error: MarkupError, *, is_object: bool = True) -> DocumentError:
        place = self.place(error.offset)
        return DocumentError(error.message, self.file, *place, is_object=is_object)


def is_object(data: Any) -> bool:
    """Return whether parsed data is a Kubernetes object: a map with ``apiVersion`` and ``kind``."""
    return isinstance(data, dict) and bool(data.get("apiVersion") and data.get("kind"))


def is_template(content: bytes) -> bool:
    """Return whether a file that cannot be parsed may be a template, for example of Helm."""
    return b"{{" in content


PORTION: Final = 1 << 20
"""Characters of the documents that are parsed together.
Shorter portions would not pay for a further process.
"""


class Portion(NamedTuple):
    """Consecutive documents of one file, which are parsed together."""

    file: str
    parts: tuple[TextChunk, ...]
    json: bool = False
    template: bool = False
    """Whether the file may be a template, which explains its errors."""

    @property
    def size(self) -> int:
        """The number of characters."""
        return sum(len(part.text) for part in self.parts)

    def parse(self) -> Iterator[Document | DocumentError]:
        """Yield the documents.

        One that cannot be read yields an error; the later ones are still read.
        """
        for each in _json(self.file, self.parts[0].text) if self.json else _parsed(self.parts):
            if self.template and isinstance(each, DocumentError):
                message = (
                    f"{each.message}; the file contains {{{{: if it is a template, render it first"
                )
                yield DocumentError(
                    message, self.file, each.line, each.column, is_object=each.is_object
                )
            else:
                yield each


def portions(content: bytes, file: str) -> Iterator[Portion]:
    """Yield a file in portions.

    They do not depend on each other, so that several processes can parse them.

    Raises:
        DocumentError: the file is not UTF-8.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        problem = f"not UTF-8 but {'UTF-16' if utf16 else 'other bytes'}: save it as UTF-8"
        raise DocumentError(problem, file, *place) from None
    template = "{{" in text
    if _BRACE.match(text):
        yield Portion(file, (TextChunk(file, text),), json=True, template=template)
        return
    for parts in batches(_parts(file, text), lambda part: len(part.text), PORTION):
        yield Portion(file, tuple(parts), template=template)


def read(content: bytes, file: str) -> tuple[list[Document], list[DocumentError]]:
    """Return the documents of a file, and the errors of those that cannot be read."""
    return sort(parse(content, file))


def sort(parsed: Iterable[Document | DocumentError]) -> tuple[list[Document], list[DocumentError]]:
    """Return documents and errors apart."""
    found: list[Document] = []
    errors: list[DocumentError] = []
    for each in parsed:
        if isinstance(each, Document):
            found.append(each)
        else:
            errors.append(each)
    return found, errors


def parse(content: bytes, file: str) -> Iterator[Document | DocumentError]:
    """Yield the documents of a file.

    A document that cannot be read yields an error; the later ones are still read.
    """
    try:
        for portion in portions(content, file):
            yield from portion.parse()
    except DocumentError as error:
        yield error


_BRACE: Final = re.compile(r"\s*\{")
_SEPARATOR: Final = re.compile(r"\n---(?=\s|\Z)")  # ten times faster than ^--- with re.MULTILINE
_DOCUMENT_END: Final = re.compile(r"(?:[ \t]*(?:[#%].*)?\r?\n)*[ \t]*(?:#.*)?(?:---(?=\s|\Z)|\Z)")
# what may precede the --- of a document
_PROLOGUE: Final = re.compile(r"(?:[ \t]*(?:[#%].*)?\r?\n)*")


def _parts(file: str, text: str, start: int = 0) -> Iterator[TextChunk]:
    """Yield the documents of a YAML stream.

    Each is parsed separately, so that an error ends only its own document.
    """
    line = 1 + text.count("\n", 0, start)
    cuts = [match.start() + 1 for match in _SEPARATOR.finditer(text, start)]
    for cut in (*cuts, len(text)):
        if not _PROLOGUE.fullmatch(text, start, cut):
            yield TextChunk(file, text[start:cut], line, start)
            line += text.count("\n", start, cut)
            start = cut


def _parsed(parts: Iterable[TextChunk]) -> Iterator[Document | DocumentError]:
    reader = YamlReader(pack=True)
    for part in parts:
        try:
            for tree in reader.documents(part.text):
                if tree.value is not None:
                    yield from _documents(part, tree)
        except MarkupError as error:
            yield part.error(error, is_object=may_be_object(part.text))


def _json(file: str, text: str) -> Iterator[Document | DocumentError]:
    """Yield the documents of a JSON stream.

    kubectl reads YAML instead if the first text is not JSON, and after a ``---``
    (k8s.io/apimachinery pkg/util/yaml/decoder.go#YAMLOrJSONDecoder).
    """
    # most files are YAML
    from virt_admit.documents.json_reader import JsonReader, NotJsonError  # noqa: PLC0415

    whole = TextChunk(file, text)
    reader = JsonReader(text)
    start_of_next = 0
    while (start := reader.space()) < len(text):
        try:
            tree = reader.document()
        except NotJsonError:
            if start_of_next and not _DOCUMENT_END.match(text, start):
                problem = (
                    "kubectl rejects the file: a JSON document is followed by text that is not "
                    "JSON. Write --- before it"
                )
                yield DocumentError(problem, file, *whole.place(start))
                return
            yield from _parsed(_parts(file, text, start))
            return
        except MarkupError as error:
            yield whole.error(error)
            return
        start_of_next = reader.position
        yield from _documents(whole, tree)


def _documents(text: TextChunk, tree: Tree) -> Iterator[Document | DocumentError]:
    """Yield the objects in one document."""
    repeated: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for children, key, first, again in tree.repeated:
        repeated[id(children), key].append((first, again))
    duplicates = [
        Duplicate(path, text.place(first)[0], text.place(again)[0])
        for path, first, again in (
            _repetitions(tree.positions.spans(tree.value), repeated, Path()) if repeated else ()
        )
    ]
    for each in _objects(text, tree.value, tree.positions, duplicates):
        if isinstance(each, DocumentError):
            each.is_object = is_object(tree.value)
        yield each


def _repetitions(
    span: Span, repeated: Mapping[tuple[int, str], list[tuple[int, int]]], path: Path
) -> Iterator[tuple[Path, int, int]]:
    """Return the paths of duplicate keys in the value, without those inside overwritten values."""
    children = span[2]
    if isinstance(children, dict):
        for key, (_, _, child) in children.items():
            for first, again in repeated.get((id(children), key), ()):
                yield path / key, first, again
            yield from _repetitions(child, repeated, path / key)
    elif isinstance(children, list):
        for index, child in enumerate(children):
            yield from _repetitions(child, repeated, path / index)


def _objects(
    text: TextChunk, value: Any, positions: Positions, duplicates: list[Duplicate]
) -> Iterator[Document | DocumentError]:
    """Yield the object itself, or the members of a List or a Template."""
    line, column = text.place(positions.start)
    if not isinstance(value, dict):
        yield DocumentError(f"{show(value)} is not a Kubernetes object", text.file, line, column)
        return
    name = holder_field(value)
    members = value.get(name) if name else None
    if not name or not isinstance(members, list):
        yield Document(value, text.file, line, is_object(value), tuple(duplicates), text, positions)
        return
    own: list[Duplicate] = []
    within: defaultdict[PathStep, list[Duplicate]] = defaultdict(list)
    for each in duplicates:
        if each.path[0] == name and len(each.path) > 2:
            within[each.path[1]].append(Duplicate(Path(*each.path[2:]), each.first_line, each.line))
        else:
            own.append(each)
    if own:  # otherwise the duplicates would not be reported
        frame = {key: item for key, item in value.items() if key != name}
        yield Document(frame, text.file, line, is_object(frame), tuple(own), text, positions)
    spans = positions.spans(value)[2][name][2][2]
    for index, member in enumerate(members):
        if isinstance(member, PackedMember):
            yield from _packed_objects(text, member, value)
        else:
            yield from _objects(
                text, _named(member, value), SpanPositions(spans[index]), within[index]
            )


def _packed_objects(
    text: TextChunk, member: PackedMember, holder: dict[str, Any]
) -> Iterator[Document | DocumentError]:
    """Yield the objects in a packed member of a List."""
    data = json_codec.loads(member.content)
    named, where = _named(data, holder), member.positions
    # the offsets belong to the keys of the text, in their order
    for each in _objects(
        text, named, where if named is data else SpanPositions(where.spans(data)), []
    ):
        if isinstance(each, Document) and each.content is data:
            yield replace(each, content=member.content)
        else:
            yield each


def _named(member: Any, holder: dict[str, Any]) -> Any:
    """Return a member with the kind that its typed list implies,
    because API responses omit it in items.
    """
    kind = holder["kind"].removesuffix("List")
    if (
        not isinstance(member, dict)
        or kind in ("", "Template")
        or "kind" in member
        or "apiVersion" in member
    ):
        return member
    return {"apiVersion": holder.get("apiVersion"), "kind": kind, **member}
