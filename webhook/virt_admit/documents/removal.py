"""Removing a member of a map or an item of a list from the text of a file.

In block style whole lines go, with the comment behind the value. Comments on lines of their own
stay.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.documents.tree import Span

Range = tuple[int, int]
"""The offsets of the text to delete."""

_REST_OF_LINE: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")
_COMMA: Final = re.compile(r"\s*,[ \t]*(?:\r?\n[ \t]*)?")
_COMMA_BEFORE: Final = re.compile(r",\s*\Z")
_NEXT_LINE: Final = re.compile(r"[ \t]*\r?\n[ \t]*")
_DASH: Final = re.compile(r"-[ \t]+\Z")


def member(text: str, parent: Span, key: str) -> Range | None:
    """Return the text of a member of a map; None if it cannot be removed without damage."""
    key_start, _, value = parent[2][key]
    if len(parent[2]) == 1 and text[parent[0]] != "{":
        return None  # the map would become null
    end = _content_end(text, value) if value[0] != value[1] else key_start + len(key) + 1
    if end is None:
        return None
    if text[parent[0]] == "{":
        return _in_flow(text, key_start, end)
    later = sorted(start for start, _, _ in parent[2].values() if start > key_start)
    if later and _line_before(text, key_start).strip():  # the first member after the dash of a list
        return (key_start, later[0]) if _NEXT_LINE.fullmatch(text, end, later[0]) else None
    return _lines(text, key_start, end)


def only_member(text: str, key_end: int, parent: Span) -> Range | None:
    """Return the text of a block map with one member,
    from behind the colon of the key that holds it.
    """
    (value,) = [value for _, _, value in parent[2].values()]
    end = _content_end(text, value) if value[0] != value[1] else None
    colon = text.find(":", key_end)
    if end is None or text[colon + 1 : parent[0]].strip():
        return None
    return colon + 1, end


def item(text: str, parent: Span, index: int) -> Range | None:
    """Return the text of an item of a list; None if it cannot be removed without damage."""
    start = parent[2][index][0]
    end = _content_end(text, parent[2][index])
    if end is None or len(parent[2]) == 1:
        return None
    if text[parent[0]] == "[":
        return _in_flow(text, start, end)
    dash = _DASH.search(text, 0, start)
    return _lines(text, dash.start(), end) if dash else None


def _content_end(text: str, span: Span) -> int | None:
    """Return the end of the last character of a value.

    The parser ends a block at its next token.
    """
    start, end, children = span
    if text[start] in "&*!|>":
        return None
    if children is None or text[start] in "{[":
        return end
    values = (
        [value for _, _, value in children.values()] if isinstance(children, dict) else children
    )
    return _content_end(text, max(values, key=lambda value: int(value[0])))


def _line_before(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : at]


def _lines(text: str, start: int, end: int) -> Range | None:
    before = _line_before(text, start)
    rest = _REST_OF_LINE.match(text, end)
    return (start - len(before), rest.end()) if rest and not before.strip() else None


def _in_flow(text: str, start: int, end: int) -> Range | None:
    """Remove one comma too."""
    if comma := _COMMA.match(text, end):
        return start, comma.end()
    before = _COMMA_BEFORE.search(text, 0, start)
    return (before.start(), end) if before else None
