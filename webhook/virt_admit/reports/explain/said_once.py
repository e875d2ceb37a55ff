"""A cause is told once in a report: later words refer to the place that has it already."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.model import messages


class Said(NamedTuple):
    """Words that a report has already, and how later ones refer to them."""

    reference: str
    """Such as ``as for a drain of its node``."""
    text: str


LONGEST: Final = 50
"""Characters of a clause that may be repeated: a reference to it is hardly shorter."""
_BEGINS: Final = re.compile(r"[:;.,] (?:but |because |and |as )?| \(")
_ENDS: Final = re.compile(r"[:;.,](?= |$)| \(|\)|…")
_CUT: Final = re.compile(r"^…($| (?=[A-Z]))")
"""What is left of a sentence that was cut."""
_LEFT: Final = re.compile(r"^[)\]}'\"?]{1,5}(?=[.;, ]|$)")
"""What is left of a quoted error whose begin was left out: nothing is open that it could close."""
_SENTENCE: Final = re.compile(r"(?<=[.…]) (?=[A-Z])")


def once(text: str, said: Sequence[Said]) -> str:
    """Return a text with a reference in place of its longest clauses that were said before."""
    shorter = _once(text, said)
    for reference in {each.reference for each in said}:
        first = shorter.find(reference) + len(reference)
        again = (
            rf"[:;.,] (?:but |because |and |as )?{re.escape(reference)}| \({re.escape(reference)}\)"
        )
        shorter = shorter[:first] + re.sub(again, "", shorter[first:])
        shorter = shorter.replace(f", and {reference}", f": {reference}")
        mark = "," if reference.startswith("as ") else ":"
        shorter = shorter.replace(f", as {reference}", f"{mark} {reference}")
        shorter = shorter.replace(f". {reference}", f". {messages.capital(reference)}")
    return shorter


def _once(text: str, said: Sequence[Said]) -> str:
    for start, end in _clauses(text):
        words = text[start:end].casefold()
        place = next(
            (each for each in said if _has(each.text.casefold(), words, text[end : end + 1])), None
        )
        if place is not None:
            left = _LEFT.sub("", text[end:]) if _opens_nothing(text[:start]) else text[end:]
            after = _CUT.sub(r".\1", left)
            return f"{_once(text[:start], said)}{place.reference}{_once(after, said)}"
    return text


def _opens_nothing(before: str) -> bool:
    """Return whether no parenthesis is open at the end of some words."""
    return before.count("(") <= before.count(")")


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of runs of clauses that are too long to be repeated,
    longest first.
    """
    begins = (0, *(found.end() for found in _BEGINS.finditer(text)))
    ends = (*(found.start() for found in _ENDS.finditer(text)), len(text) - text.endswith("."))
    runs = [(start, end) for start in begins for end in ends if end - start > LONGEST]
    yield from sorted(
        filter(lambda run: _is_balanced(text[slice(*run)]), runs), key=lambda run: run[0] - run[1]
    )


def _is_balanced(words: str) -> bool:
    """Return whether each parenthesis of a clause is closed in it."""
    depth = 0
    for mark in filter(lambda each: each in "()", words):
        depth += 1 if mark == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def _has(text: str, words: str, following: str) -> bool:
    """Return whether a text has these words. ``following``: an ellipsis where they were cut."""
    start = text.find(words)
    if start < 0:
        return False
    end = start + len(words)
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    return not before.isalnum() and (following == "…" or not (after.isalnum() or after == "-"))


def without_remedy(message: str, remedies: Sequence[str]) -> str:
    """Return a message without the last sentences that remedies say, but with its first one."""
    sentences = _SENTENCE.split(message)
    said = [messages.without_command(each).casefold() for each in remedies]
    while len(sentences) > 1 and any(
        _has(each, sentences[-1].rstrip(".…").casefold(), "") for each in said
    ):
        sentences.pop()
    return " ".join(sentences)
