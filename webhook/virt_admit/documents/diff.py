"""Unified diffs, as ``git apply -p0`` accepts them, of texts whose corresponding pieces are known.

``difflib`` alone is too slow for manifests: it compares each line with all equal lines, and objects
share most lines.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

CONTEXT: Final = 3
"""Lines around a change."""


class Replacement(NamedTuple):
    """Lines ``start`` to ``end`` are replaced by lines ``new_start`` to ``new_end`` of the new
    text; counted from 0.
    """

    start: int
    end: int
    new_start: int
    new_end: int


def unified(name: str, before: str, after: str, cuts: Iterable[tuple[int, int]] = ()) -> str:
    """Return the diff of two texts; empty if they are equal.

    Args:
        name: the file name in the header.
        before: the old text.
        after: the new text.
        cuts: pairs of line numbers in both texts, counted from 0 and sorted. The pieces between
            them are compared separately.
    """
    old, new = (list(io.StringIO(text)) for text in (before, after))  # only LF ends a line
    hunks: list[list[Replacement]] = []
    for change in _changes(old, new, [(0, 0), *cuts, (len(old), len(new))]):
        if hunks and change.start - hunks[-1][-1].end <= 2 * CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    changed = (line for hunk in hunks for line in _hunk(old, new, hunk))
    lines = [f"--- {name}\n", f"+++ {name}\n", *changed]
    shown = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    return "".join(shown) if hunks else ""


def _changes(
    old: list[str], new: list[str], cuts: Iterable[tuple[int, int]]
) -> Iterator[Replacement]:
    for (start, new_start), (end, new_end) in pairwise(cuts):
        piece, new_piece = old[start:end], new[new_start:new_end]
        if piece != new_piece:
            for tag, *(a, b, c, d) in difflib.SequenceMatcher(None, piece, new_piece).get_opcodes():
                if tag != "equal":
                    yield Replacement(start + a, start + b, new_start + c, new_start + d)


def _hunk(old: list[str], new: list[str], changes: list[Replacement]) -> Iterator[str]:
    first, last = changes[0], changes[-1]
    start, end = max(first.start - CONTEXT, 0), min(last.end + CONTEXT, len(old))
    new_start, new_end = first.new_start - first.start + start, last.new_end - last.end + end
    yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@\n"
    for change in changes:
        yield from (f" {line}" for line in old[start : change.start])
        yield from (f"-{line}" for line in old[change.start : change.end])
        yield from (f"+{line}" for line in new[change.new_start : change.new_end])
        start = change.end
    yield from (f" {line}" for line in old[start:end])


def _range(start: int, end: int) -> str:
    """Format the first line and the number of lines unless it is 1;
    the line before names an empty range.
    """
    length = end - start
    return str(start + 1) if length == 1 else f"{start + bool(length)},{length}"
