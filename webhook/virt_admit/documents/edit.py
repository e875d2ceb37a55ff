"""Fixes in files: each operation of a JSON Patch changes a few characters and leaves the rest of
the text.

Serializing a value again would lose comments, order and quoting. An edit therefore only touches the
text between the marks of the parser. A new member goes before the first member of its map, so that
no comment is separated from the line that it explains. The result is parsed again and must equal
the patched objects, which detects wrong edits.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from virt_admit.documents import reader, removal
from virt_admit.documents.reader import Document
from virt_admit.documents.tree import MarkupError, Span
from virt_admit.documents.yaml_reader import YamlReader
from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object, Path, PathStep


class Edit(NamedTuple):
    """The characters from ``start`` to ``end`` are replaced by ``text``."""

    start: int
    end: int
    text: str


class CannotEdit(Exception):
    """Why an operation is not possible without damage to the surrounding text."""


@dataclass(frozen=True, slots=True)
class EditResult:
    """A file with its fixes."""

    content: bytes
    documents: tuple[Document, ...]
    """The documents of the new content."""
    fixed: int
    """The number of changed documents."""
    refused: Mapping[int, str]
    """By the position of a document in the file: why it is not changed."""
    roundtrips: bool
    """Whether the new content parses to the patched objects. If not, it must not be used."""


def edit_text(content: bytes, file: str, patches: Sequence[Sequence[Patch]]) -> EditResult:
    """Apply a JSON Patch to each document of a file, in the order of ``reader.parse``.

    A document is fixed completely or not at all.

    Raises:
        PatchError: a patch does not fit its object.
    """
    refused: dict[int, str] = {}
    while True:
        wanted = [() if index in refused else each for index, each in enumerate(patches)]
        try:
            after, found, roundtrips = _apply(content, file, wanted)
        except _RefusedSome as some:
            refused |= some.why
        else:
            return EditResult(after, tuple(found), sum(map(bool, wanted)), refused, roundtrips)


class _RefusedSome(Exception):
    """Some documents have an operation that cannot be applied."""

    def __init__(self, why: dict[int, str]) -> None:
        super().__init__(why)
        self.why = why


def _apply(
    content: bytes, file: str, patches: Sequence[Sequence[Patch]]
) -> tuple[bytes, Sequence[Document], bool]:
    """Return the edited content, its documents, and whether they equal the patched objects.

    The first operation of every document is applied first. Then the file is parsed again, because
    offsets have changed.
    """
    found = _read(content, file)
    for operations in zip_longest(*patches):
        steps = list(zip(found, operations, strict=True))
        patched = ((Object(document.data), [step] if step else ()) for document, step in steps)
        wanted = [json_patch.apply(obj, some).data for obj, some in patched]
        content = _edited(content, _edits(steps))
        found = _read(content, file)
        if _typed([document.data for document in found]) != _typed(wanted):
            return content, found, False
    return content, found, True


def _read(content: bytes, file: str) -> list[Document]:
    return reader.read(content, file)[0]


def _typed(value: Any) -> str:
    """Serialize a value so that 1 and true differ, which are equal in Python,
    and the order of keys does not matter.
    """
    return json.dumps(value, sort_keys=True)


def _edits(steps: Iterable[tuple[Document, Patch | None]]) -> list[Edit]:
    edits: list[Edit] = []
    refused: dict[int, str] = {}
    for index, (document, operation) in enumerate(steps):
        if operation is None or operation.op == "test":
            continue
        part = document.part
        try:
            start, end, text = edit(part.text, document.span, operation)
        except CannotEdit as refusal:
            refused[index] = str(refusal)
        else:
            edits.append(Edit(part.start + start, part.start + end, text))
    if refused:
        raise _RefusedSome(refused)
    return edits


def _edited(content: bytes, edits: Iterable[Edit]) -> bytes:
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    text = content.removeprefix(mark).decode()
    pieces: list[str] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces += text[at:start], new
        at = end
    return mark + "".join((*pieces, text[at:])).encode()


# --- one operation --------------------------------------------------------------------------------


def edit(text: str, span: Span, operation: Patch) -> Edit:
    """Return the edit of the text for an operation on the object at this span.

    Raises:
        CannotEdit: the text would be damaged, or other parts of the file share the map.
    """
    *steps, last = operation.path
    parent, holder = _walk(text, span, steps)
    if operation.op == "remove":
        return _removal(text, parent, holder, operation)
    if operation.op == "replace" and isinstance(last, int) and isinstance(parent[2], list):
        start, end, children = parent[2][last]
        if children is None and text[start] not in _UNEDITABLE:
            return Edit(start, end, _written(operation.value, text[start] == '"'))
    if (
        operation.op not in ("add", "replace")
        or not isinstance(last, str)
        or not isinstance(parent[2], dict)
    ):
        raise CannotEdit(f"{operation.op} {operation.path} has to be done by hand")
    known = _own(parent, last)
    if known is not None:
        return _replacement(text, known, operation)
    if last in parent[2]:
        raise CannotEdit(f"{operation.path} comes from a map that is merged in (<<)")
    quoted = text[_first(text, parent if parent[2] else span)] == '"'
    return _addition(text, parent, holder, operation, quoted)


_UNEDITABLE: Final = "&*!|>"


def _removal(text: str, parent: Span, holder: Member | None, operation: Patch) -> Edit:
    last = operation.path[-1]
    if holder and isinstance(last, str) and list(parent[2]) == [last] and text[parent[0]] != "{":
        emptied = removal.only_member(text, holder[1], parent)
        if emptied:
            return Edit(*emptied, " {}")
    found = None
    if isinstance(last, int) and isinstance(parent[2], list):
        found = removal.item(text, parent, last)
    elif isinstance(last, str) and _own(parent, last):
        found = removal.member(text, parent, last)
    if found is None or "&" in text[slice(*found)]:
        raise CannotEdit(f"remove {operation.path} has to be done by hand")
    return Edit(*found, "")


_SHARED: Final = {"&": "is named by an anchor (&)", "*": "is an alias (*)", "!": "has a tag (!)"}

Member = tuple[int, int, Span]
"""Start and end of a key, and the span of its value."""


def _walk(text: str, span: Span, steps: Sequence[PathStep]) -> tuple[Span, Member | None]:
    """Return the map at the end of these steps, and the member that holds it, if any."""
    holder: Member | None = None
    _check_alone(text, span, Path())
    for count, step in enumerate(steps, 1):
        path = Path(*steps[:count])
        if isinstance(step, int):
            holder, span = None, span[2][step]
        else:
            holder = _own(span, step)
            if holder is None:
                raise CannotEdit(f"{path} comes from a map that is merged in (<<)")
            span = holder[2]
        _check_alone(text, span, path)
    return span, holder


def _check_alone(text: str, span: Span, path: Path) -> None:
    """Raise if other parts of the file share this value."""
    if shared := _SHARED.get(text[span[0] : span[0] + 1]):
        raise CannotEdit(f"{path or 'the object'} {shared}")


def _own(span: Span, key: str) -> Member | None:
    """Return the member of a map itself, not of a map that is merged into it."""
    member: Member | None = span[2].get(key)
    if member is None or not span[0] <= member[0] <= span[1]:
        return None
    inside_another = any(start <= member[0] < end for _, _, (start, end, _) in span[2].values())
    return None if inside_another else member


def _replacement(text: str, member: Member, operation: Patch) -> Edit:
    key, key_end, (start, end, children) = member
    old = text[start:end]
    scalar = children is None
    simple = (
        old[:1] not in ("&", "!", "|", ">") if scalar else not children and not old[1:-1].strip()
    )
    if not simple or ":" not in text[key_end:start]:
        raise CannotEdit(f"{operation.path} has a value that has to be replaced by hand")
    new = _written(operation.value, text[key] == '"')
    if start == end:  # an absent value means null, and parsers disagree about its position
        start = end = text.index(":", key_end) + 1
    return Edit(start, end, new if text[start - 1].isspace() else f" {new}")


_OPENING: Final = re.compile(r"\{(?:\s|#[^\n]*)*")
"""Up to the first member of a map in braces."""
_OWN_LINE: Final = re.compile(r"[ \t]*:[ \t]*(?:#[^\n]*)?\r?\n")
"""The rest of the line after a key whose value starts on a later line."""


def _first(text: str, span: Span) -> int:
    """Return the start of the first member of a map; for an empty map, its end."""
    opening = _OPENING.match(text, span[0])
    return opening.end() if opening else int(span[0])


def _addition(
    text: str, parent: Span, holder: Member | None, operation: Patch, quoted: bool
) -> Edit:
    """Return an edit that adds a new first member to a map."""
    member = f"{_written(operation.path[-1], quoted)}: {_written(operation.value, quoted)}"
    start, _, children = parent
    first = _first(text, parent)
    newline = _newline(text, first)
    before = text[text.rfind("\n", 0, first) + 1 : first]
    if not children and text[first] == "}":
        return Edit(start + 1, start + 1, member)
    if text[start] == "{":
        return Edit(first, first, member + (", " if before.strip() else f",{newline}{before}"))
    indent = " " * len(before)
    behind = _OWN_LINE.match(text, holder[1], first) if holder else None
    if behind:  # before the comments that precede the first member
        return Edit(behind.end(), behind.end(), indent + member + newline)
    return Edit(first, first, member + newline + indent)


def _newline(text: str, at: int) -> str:
    """Return the line ending at this offset."""
    end = text.find("\n", at)
    if end < 0:  # the last line is like the one before
        end = text.rfind("\n", 0, at)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")


def _written(value: Any, quoted: bool) -> str:
    """Format a value as YAML, or as valid JSON too if its neighbours are ``quoted``."""
    if (
        not quoted
        and isinstance(value, str)
        and _PLAIN.fullmatch(value)
        and _reads_as(value, value)
    ):
        return value
    return json.dumps(value, ensure_ascii=False)


def _reads_as(text: str, value: Any) -> bool:
    try:
        return [tree.value for tree in YamlReader().documents(text)] == [value]
    except MarkupError:
        return False
