"""Phrases that many messages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.units import show

LONGEST_WARNING: Final = 256
"""Characters. The API server may truncate longer warnings."""

LONGEST_MESSAGE: Final = 480
"""Characters of a finding that is never a warning of the API server: six lines of a terminal."""

MOST_NAMES: Final = 5
"""The largest number of names in one message; the total is always given."""


def names(items: Iterable[str], width: int = 120) -> str:
    """Join names: ``a, b and 7 more``, with at most five names and about ``width`` characters,
    but at least one name.

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
    """Truncate a text to ``length`` characters after a whole word, ending with an ellipsis if
    anything was removed.
    """
    if len(text) <= length:
        return text
    kept = text[: max(length - 1, 0)]
    is_whole = text[len(kept) : len(kept) + 1] in _BORDERS
    return (kept if is_whole else _without_part(kept, _BORDERS)).rstrip(" ,;:(…") + "…"


def shorten(text: str, length: int) -> str:
    """Return the first statements of a text that fit into ``length`` characters,
    else its begin and its end.

    A text that ends with a whole statement needs no ellipsis: nothing of it is incomplete.
    """
    if len(text) <= length:
        return text
    last = max(_ends(_ENDS, text[: length + 2]), default=0)
    if 2 * last < length:  # what a colon announces is missing then, but what precedes it is true
        last = max(last, *_ends(_COLON, text[: length + 2]), 0)
    return text[:last] if 3 * last >= length else cut(text, length)


_ENDS: Final = re.compile(r"[.;] |, (?=(?:because|and|but) )| \(")
"""What begins another statement, or an explanation."""
_COLON: Final = re.compile(": ")


def _ends(mark: re.Pattern[str], text: str) -> list[int]:
    """Return where statements of a text end, outside of parentheses."""
    starts = [found.start() for found in mark.finditer(text)]
    return [start for start in starts if text.count("(", 0, start) <= text.count(")", 0, start)]


def scheduler_words(text: str, length: int) -> str:
    """Shorten why kube-scheduler finds no node, by whole reasons:
    the taint at the end may be the one that counts.

    What it says about preemption repeats the reasons, and that no resource claims are freed is
    none. That pods avoid control-plane nodes is the least of them. Source:
    kubernetes/kubernetes:pkg/scheduler/framework/types.go#FitError,
    pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go#PostFilter.
    """
    text = " ".join(text.split())
    found = text.partition(" preemption: ")[0].rstrip(" .,").removesuffix(_NO_CLAIMS).rstrip(" .")
    if "nodes are available: " not in found:
        return cut(text, length)
    if len(found) <= length:
        return found
    begin, _, reasons = found.replace(" node(s)", "").partition("nodes are available: ")
    begin, left = f"{begin}nodes are available: ", _REASON.split(reasons)
    left.sort(key=lambda each: _CONTROL_PLANE in each)
    for number in range(min(len(left), length // len("1 x, ")), 0, -1):  # no more of them fit
        more = f" and {count(len(left) - number, 'more reason')}" if number < len(left) else ""
        short = f"{begin}{', '.join(left[:number])}{more}"
        if len(short) <= length:
            return short
    return cut(f"{begin}{left[0]}", length)


_NO_CLAIMS: Final = "no new claims to deallocate"
_REASON: Final = re.compile(r", (?=\d+ )")
_CONTROL_PLANE: Final = "node-role.kubernetes.io/"


def cut_bytes(text: str, size: int) -> str:
    """Truncate a text to ``size`` bytes of UTF-8, as ``cut`` does."""
    if len(text.encode()) <= size:
        return text
    return text.encode()[: max(size - len("…".encode()), 0)].decode(errors="ignore").rstrip() + "…"


def cut_middle(text: str, length: int, *, parts: int = 3) -> str:
    """Shorten the error of a program: the begin says what failed, and the end says why.

    Long paths and the frame of a gRPC error go first. What remains is cut between clauses where it
    has any, so that no part of a clause is read as the whole: "is still attached to node a" never
    becomes "node a… does not exist".

    ``parts``: the begin gets one of so many equal parts.
    """
    if len(text) <= length:
        return text
    if (refused := _FORBIDDEN.search(text)) and length - len(refused[0]) >= _SHORTEST_REASON:
        return f"{refused[0]}{cut_middle(text[refused.end() :], length - len(refused[0]))}"
    calls = list(_CALL.finditer(text))
    text = _PATH.sub(r"\1/…/\2", text)
    if calls:  # what was called, then what the last one answers
        begin, end = (
            _PATH.sub(r"\1/…/\2", text[: calls[0].start()]).rstrip(" :"),
            text.rindex(calls[-1][0]),
        )
        text = f"{calls[-1][1]}: {text[end + len(calls[-1][0]) :]}"
        left = length - len(text) - 2
        if not begin:
            return shorten(text, length)
        if left >= min(len(begin), _SHORTEST_BEGIN):
            return (
                f"{begin}: {text}"
                if len(begin) <= left
                else f"{_whole_clause(_without_part(begin[:left]))}… {text}"
            )
        return shorten(text, length)
    if len(text) <= length:
        return text
    head, tail = _ends_of(text, length, parts)
    lost = next((each for each in _URL.findall(text) if each not in head and each not in tail), "")
    if lost and 2 * len(lost) <= length:  # which server it was about
        shorter_head, shorter_tail = _ends_of(text, length - len(lost) - 3, parts)
        if shorter_head and shorter_tail:
            return f"{_whole_clause(shorter_head)}… {lost}… {shorter_tail}"
    spaced = f"{_whole_clause(head)}… {tail}"
    return spaced if len(spaced) <= length and head and tail else f"{head}…{tail}"


def _ends_of(text: str, length: int, parts: int) -> tuple[str, str]:
    """Return the begin and the end of a text that fit into a length, with a mark between them."""
    first = max((length - 1) // parts, 0)
    last = len(text) - (length - 1 - first)
    head = _without_part(text[: first + 1])[:first].rstrip()
    tail = _without_part(text[last - 1 :][::-1])[::-1]
    tail = tail[-(len(text) - last) :].lstrip() if last < len(text) else ""
    begins = [found.end() for found in _CLAUSE.finditer(tail)]
    begins = [end for end in begins if 3 * end <= len(tail) and tail[end - 2] != ","]
    return head, tail[begins[0] :] if begins else tail


_BORDERS: Final = ' ,:"'
"""What is between words, also in JSON."""
_CLAUSE: Final = re.compile(r"[:;.] |, ")
_PATH: Final = re.compile(
    r"(/[\w.-]{1,64})(?:/[\w.~-]{1,255}){3,40}?"
    r"/([\w.~-]{1,255}/[\w.~-]{1,250}\.(?:img|iso|qcow2|raw)|[\w.~-]{1,255})(?![\w.~/-])"
)
"""A path of at least five parts: the first and last one tell which it is,
of an image its folder.
"""
_URL: Final = re.compile(r"\b[a-z][a-z0-9+]{1,15}://[\w.:@/~…%-]{4,200}(?<![:./])")
_CALL: Final = re.compile(r"rpc error: code = (\w+) desc = ")
_SHORTEST_BEGIN: Final = 30
_FORBIDDEN: Final = re.compile(
    r'(?<![\w.])[a-z][a-z.]{0,100}(?: \\?"[^"\\]{1,253}\\?")?'
    r" is forbidden: (?=.)"
)
"""What the API server answers about an object: its name is never cut, what precedes it is."""
_SHORTEST_REASON: Final = 60


def _whole_clause(text: str) -> str:
    """Return the begin of a text up to the end of its last whole clause,
    unless that leaves less than half of it.
    """
    ends = [found.start() for found in _CLAUSE.finditer(text)]
    return text[: ends[-1]] if ends and 2 * ends[-1] >= len(text) else text


def _without_part(text: str, borders: str = " ,") -> str:
    """Return a text that was cut without the word at its end, which may be incomplete,
    unless that is more than half.
    """
    whole = text[: max(0, *(text.rfind(border) for border in borders))]
    return whole if 2 * len(whole) >= len(text) else text


def first_within(most: int, *choices: str) -> str:
    """Return the first text of at most so many characters, else the last one."""
    return next((text for text in choices if len(text) <= most), choices[-1])


def unknown(
    word: object, known: Sequence[str], suggestion: str | None, *, newer: bool = False
) -> str:
    """Return the message for a value that KubeVirt rejects, with the value to write instead.

    Args:
        newer: KubeVirt is newer than virt-admit, so it may accept values that are not in ``known``.
    """
    rejects = "may reject" if newer else "rejects"
    write = (
        f"{suggestion} (known: {', '.join(known)})" if suggestion else f"one of {', '.join(known)}"
    )
    return f"{show(word)} is not a known value, so KubeVirt {rejects} it. Write {write}."


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def sentence(text: str) -> str:
    """Return the text with a capital first letter and a full stop."""
    return ended(capital(text))


def ended(text: str) -> str:
    """Return the text with a full stop, unless an ellipsis,
    a full stop or a command that people copy ends it.
    """
    return text if text.endswith(("…", ".")) or command_of(text) else f"{text}."


def command_of(remedy: str) -> str:
    """Return the command at the end of a remedy; empty: it has none."""
    found = _COMMAND.search(remedy)
    return found[1] if found else ""


def without_command(remedy: str) -> str:
    """Return the words of a remedy."""
    return _COMMAND.sub("", remedy)


def advice_of(remedy: str) -> str:
    """Return a remedy as a sentence without the command at its end, which is shown beside it."""
    return sentence(without_command(remedy))


_COMMAND: Final = re.compile(r": ((?:kubectl|virtctl|helm|virt-admit) [^;]*)\Z")
_MOST_EDITS: Final = 2


def did_you_mean(
    word: object, known: Sequence[str], aliases: Mapping[str, str] | None = None
) -> str | None:
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
    edits, nearest = min(
        ((_edits(lower, each.lower()), each) for each in similar), default=(len(word), "")
    )
    return nearest if edits <= _MOST_EDITS and edits < len(word) else None


def _edits(left: str, right: str) -> int:
    """Return the Levenshtein distance: insertions,
    deletions and replacements that turn one word into the other.
    """
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        previous, row = row, [i]
        for j, b in enumerate(right, start=1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b)))
    return row[-1]
