"""Unified diffs are those of difflib, and cost no more for being many."""

from __future__ import annotations

import cProfile
import difflib
import io
import pstats
import re

from hypothesis import given
from hypothesis import strategies as st

from virt_admit.documents.diff import unified

TEXT = st.lists(st.sampled_from(["a\n", "b\n", "\n", "a\r\n", "c\x0c\n"]), max_size=30).map("".join)
END = st.sampled_from(["", "end"])


def lines(text):
    return list(io.StringIO(text))


@given(TEXT, TEXT, END, END)
def test_it_is_that_of_difflib(old, new, old_end, new_end):
    old, new = old + old_end, new + new_end
    wanted = [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(lines(old), lines(new), "x", "x")
    ]
    assert unified("x", old, new) == "".join(wanted)


def patched(text, diff):
    """What ``patch`` would make of a text."""
    old, new, at = lines(text), [], 0
    for line in lines(diff.replace("\n\\ No newline at end of file", ""))[2:]:
        sign, rest = line[0], line[1:]
        if sign == "@":
            first, length = re.match(r"@@ -(\d+),?(\d*)", line).groups()
            start = int(first) - (length != "0")
            new, at = new + old[at:start], start
            continue
        if sign in " -":
            assert old[at].removesuffix("\n") == rest.removesuffix("\n")
            at += 1
        if sign in " +":
            new.append(rest)
    return new + old[at:]


@given(st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_pieces_are_compared_on_their_own(pieces):
    cuts, old, new = [], "", ""
    for piece, new_piece in pieces:
        cuts.append((old.count("\n"), new.count("\n")))
        old, new = old + piece, new + new_piece
    diff = unified("x", old, new, cuts)
    assert patched(old, diff) == lines(new)
    assert bool(diff) == (old != new)


def calls(pieces):
    """How many function calls it takes to compare so many pieces, each with a line more."""
    old = [f"name: {number}\n" + "a:\nb:\nc:\nd:\n" for number in range(pieces)]
    cuts = [(5 * number, 6 * number) for number in range(pieces)]
    profile = cProfile.Profile()
    profile.runcall(
        unified, "x", "".join(old), "".join(each.replace("c:", "new:\nc:") for each in old), cuts
    )
    return pstats.Stats(profile).total_calls


def test_twice_as_many_objects_cost_twice_as_much():
    assert calls(200) < 2.1 * calls(100)
