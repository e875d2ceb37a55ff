"""Phrases that many messages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.objects import Path
from virt_admit.model.kubernetes.units import show

LONGEST_WARNING: Final = 256
"""Characters. The API server may truncate longer warnings."""

MOST_NAMES: Final = 5
"""The largest number of names in one message; the total is always given."""


def names(items: Iterable[str], width: int = 120) -> str:
    """Join names: ``a, b and 7 more``, with at most five names and about ``width`` characters, but at least one name.

    The width is limited because the API server may truncate warnings longer than 256 characters.
    """
    every = list(items)
    shown = every[:MOST_NAMES]
    while len(shown) > 1 and len(_list(shown, len(every))) > width:
        shown.pop()
    return _list(shown, len(every))


def _list(shown: list[str], total: int) -> str:
    more = total - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def count(number: int, noun: str) -> str:
    """Return ``1 machine``, ``3 machines``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th``."""
    teen = number // 10 % 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def cut(text: str, length: int) -> str:
    """Truncate a text to ``length`` characters after a whole word, ending with an ellipsis if anything was removed."""
    if len(text) <= length:
        return text
    kept = text[: max(length - 1, 0)]
    is_whole = text[len(kept) : len(kept) + 1] in _BORDERS
    return (kept if is_whole else _without_part(kept, _BORDERS)).rstrip(" ,;:(…") + "…"


def shorten(text: str, length: int) -> str:
    """Return the first statements of a text that fit into ``length`` characters, else its begin and its end.

    A text that ends with a whole statement needs no ellipsis: nothing of it is incomplete.
    """
    if len(text) <= length:
        return text
    ends = [text.rfind(mark, 0, length + len(mark)) for mark in _ENDS]
    last = max(ends)
    return text[:last] if 2 * last >= length else cut_middle(text, length, parts=2)


_ENDS: Final = (". ", "; ", ", because ", ", and ", ", but ")
"""What begins another statement."""


def cut_bytes(text: str, size: int) -> str:
    """Truncate a text to ``size`` bytes of UTF-8, as ``cut`` does."""
    if len(text.encode()) <= size:
        return text
    return text.encode()[: max(size - len("…".encode()), 0)].decode(errors="ignore").rstrip() + "…"


def cut_middle(text: str, length: int, *, parts: int = 3) -> str:
    """Shorten a text in its middle: the begin says what failed, and the end of a program's error says why.

    ``parts``: the begin gets one of so many equal parts.
    """
    if len(text) <= length:
        return text
    first = max((length - 1) // parts, 0)
    last = len(text) - (length - 1 - first)
    head, tail = _without_part(text[: first + 1])[:first].rstrip(), _without_part(text[last - 1 :][::-1])[::-1]
    tail = tail[-(len(text) - last) :].lstrip() if last < len(text) else ""
    spaced = f"{head}… {tail}"
    return spaced if len(spaced) <= length and head and tail else f"{head}…{tail}"


_BORDERS: Final = ' ,:"'
"""What is between words, also in JSON."""


def _without_part(text: str, borders: str = " ,") -> str:
    """Return a text that was cut without the word at its end, which may be incomplete, unless that is more than half."""
    whole = text[: max(0, *(text.rfind(border) for border in borders))]
    return whole if 2 * len(whole) >= len(text) else text


def room(path: Path, rule: str) -> int:
    """Return the characters that a warning of this rule at this path has for its message."""
    return LONGEST_WARNING - len(f"{path}:  [virt-admit/{rule}]")


def first_that_fits(path: Path, rule: str, *choices: str) -> str:
    """Return the first text that fits into a warning of this rule at this path, else the last one."""
    most = room(path, rule)
    return next((text for text in choices if len(text) <= most), choices[-1])


def unknown(word: object, known: Sequence[str], suggestion: str | None, *, newer: bool = False) -> str:
    """Return the message for a value that KubeVirt rejects, with the value to write instead.

    Args:
        newer: KubeVirt is newer than virt-admit, so it may accept values that are not in ``known``.
    """
    rejects = "may reject" if newer else "rejects"
    write = f"{suggestion} (known: {', '.join(known)})" if suggestion else f"one of {', '.join(known)}"
    return f"{show(word)} is not a known value, so KubeVirt {rejects} it. Write {write}."


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def sentence(text: str) -> str:
    """Return the text with a capital first letter and a full stop."""
    return ended(capital(text))


def ended(text: str) -> str:
    """Return the text with a full stop, unless an ellipsis or a full stop ends it."""
    return text if text.endswith(("…", ".")) else f"{text}."


def command_of(remedy: str) -> str:
    """Return the command at the end of a remedy; empty: it has none."""
    found = _COMMAND.search(remedy)
    return found[1] if found else ""


_COMMAND: Final = re.compile(r": ((?:kubectl|virtctl) [^;]*)\Z")
_MOST_EDITS: Final = 2


def did_you_mean(word: object, known: Sequence[str], aliases: Mapping[str, str] | None = None) -> str | None:
    """Return the known word that was probably meant: different case, or at most two edits away.

    Keys of ``aliases`` are in lower case.
    """
    if not isinstance(word, str) or len(word) > max(map(len, known), default=0) + _MOST_EDITS:
        return None
    lower = word.lower()
    if aliases and lower in aliases:
        return aliases[lower]
    # an edit changes the length by one at most, so other words need not be compared
    similar = (each for each in known if abs(len(each) - len(lower)) <= _MOST_EDITS)
    edits, nearest = min(((_edits(lower, each.lower()), each) for each in similar), default=(len(word), ""))
    return nearest if edits <= _MOST_EDITS and edits < len(word) else None


def _edits(left: str, right: str) -> int:
    """Return the Levenshtein distance: insertions, deletions and replacements that turn one word into the other."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        previous, row = row, [i]
        for j, b in enumerate(right, start=1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b)))
    return row[-1]
