"""The steps of a remedy on a terminal: one line each, with its command below it.

A remedy is one text, in JSON too: ``give it room: kubectl edit …; or stop it (virtctl stop …)``. A
semicolon ends a step. The command of a step follows its words, after a colon or in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.messages import TOOLS


class RemedyStep(NamedTuple):
    """What to do, after the step before it or instead of that."""

    words: str
    command: str = ""


_LABEL: Final = "to do: "
_LONGEST: Final = 100
"""A remedy of one step and of so many characters is one line with its command."""
_BORDER: Final = re.compile(r"[()]|; ")
_TYPED: Final = re.compile(rf":? (?:{TOOLS}) ")
_AFTER: Final = re.compile(rf": (?:{TOOLS}) ")
_AFTER_COLON: Final = re.compile(rf": ((?:{TOOLS}) .*)\Z")
_APOSTROPHE: Final = """'"'"'"""
"""One in a quoted argument (``shlex.quote``): it stays open."""
_IN_PARENTHESES: Final = re.compile(rf" \(((?:{TOOLS}) [^()]*)\)\Z")


def steps(remedy: str) -> tuple[RemedyStep, ...]:
    """Return the steps of a remedy in their order."""
    return tuple(map(_step, _parts(remedy)))


def _step(part: str) -> RemedyStep:
    found = _AFTER_COLON.search(part) or _IN_PARENTHESES.search(part)
    return RemedyStep(part[: found.start()], found[1]) if found else RemedyStep(part)


def _parts(remedy: str) -> Iterator[str]:
    """Yield what semicolons separate, but not those in parentheses or in a quoted argument."""
    begin = depth = 0
    for border in _BORDER.finditer(remedy):
        depth += {"(": 1, ")": -1}.get(border[0], 0)
        part = remedy[begin : border.start()]
        if border[0] == "; " and depth <= 0 and not _is_quoting(part):
            yield part
            begin, depth = border.end(), 0
    yield remedy[begin:]


def _is_quoting(part: str) -> bool:
    """Return whether an argument is open at the end of a part: words have apostrophes too."""
    found = _TYPED.search(part)
    return found is not None and part[found.end() :].replace(_APOSTROPHE, "").count("'") % 2 == 1


def lines(remedy: str, before: str = "", after: str = "") -> Iterator[str]:
    """Yield the lines of a remedy. ``before``: what begins the first one, ``after``: the others."""
    found = steps(remedy)
    if len(found) == 1 and (len(remedy) <= _LONGEST or not found[0].command):
        yield f"{before}{remedy}"
        return
    for number, step in enumerate(found):
        begin = after if number else before
        yield f"{begin}{step.words}{':' if step.command else ''}"
        if step.command:
            yield f"{after}  {step.command}"


def spread(text: str) -> str:
    """Return the text of a report with each step of its remedies in a line of its own."""
    return "\n".join(line for each in text.split("\n") for line in _spread(each))


def _spread(line: str) -> Iterator[str]:
    indent = " " * (len(line) - len(line.lstrip(" ")))
    told, remedy = _note(line, len(indent))
    if told:
        indent += "  "
        yield told
    elif line.startswith(_LABEL, len(indent)):
        remedy = line.strip().removeprefix(_LABEL)
    else:
        yield line
        return
    before = f"{indent}{_LABEL}"
    yield from lines(remedy, before, " " * len(before))


def _note(line: str, start: int) -> tuple[str, str]:
    """Return a note without the sentence of it that has a command, and that with what follows;
    empty: the line is something else.
    """
    typed = _AFTER.search(line) if line.startswith("note", start) else None
    border = line.rfind(". ", 0, typed.start()) if typed is not None else -1
    before, remedy = line[: border + 1], line[border + 2 :]
    whole = border >= 0 and before.count("(") == before.count(")")
    return (before, remedy) if whole else ("", "")
