"""Remedies on a terminal: each step in a line of its own, with its command below it."""

import pytest

from tests.remedies import faults, joined, remedies
from virt_admit.model.commands import shell, typed
from virt_admit.reports.remedy_steps import lines, spread, steps

PATCH = """kubectl patch vm db -n shop -p '{"a":"b; c"}'"""
STOP = "virtctl stop db -n shop"
REMEDY = f"give it room (a; b): {PATCH}; then wait; or stop it ({STOP})"


def test_a_step_has_the_command_behind_it():
    assert steps(REMEDY) == (
        ("give it room (a; b)", PATCH),
        ("then wait", ""),
        ("or stop it", STOP),
    )


def test_a_semicolon_behind_an_apostrophe_of_an_argument_ends_no_step():
    command = shell("kubectl", "annotate", "vm", "db", "note=it's off; ask Ann")
    assert steps(f"say it: {command}; then wait") == (("say it", command), ("then wait", ""))


def test_each_step_and_each_command_has_a_line():
    assert list(lines(REMEDY, "to do: ", "       ")) == [
        "to do: give it room (a; b):",
        f"         {PATCH}",
        "       then wait",
        "       or stop it:",
        f"         {STOP}",
    ]


@pytest.mark.parametrize("remedy", [f"stop it: {STOP}", "let the guest of shop/db end, " * 9])
def test_a_short_step_and_one_without_a_command_stay_in_one_line(remedy):
    assert list(lines(remedy)) == [remedy]


def test_only_the_remedies_of_a_report_are_spread():
    report = f"node a; node b: {STOP}\n    to do: {REMEDY}\nA drain of a does not end."
    assert spread(report).count("\n") == report.count("\n") + 4
    assert joined(spread(report)) == report.replace(f" ({STOP})", f": {STOP}")
    assert list(remedies(spread(report))) == [REMEDY.replace(f" ({STOP})", f": {STOP}")]


def test_the_remedy_in_a_note_is_spread_too():
    note = f"  note: It waits (for b; c). That lasts. As a decision, stop it: {STOP}; then look"
    assert spread(note).split("\n") == [
        "  note: It waits (for b; c). That lasts.",
        "    to do: As a decision, stop it:",
        f"             {STOP}",
        "           then look",
    ]
    assert joined(spread(note)) == note
    assert spread(f"  note: stop it: {STOP}") == f"  note: stop it: {STOP}"


@pytest.mark.parametrize(
    ("words", "further", "whole"),
    [
        ("stop it", "", f"stop it: {STOP}"),
        ("stop it; or wait", "", f"stop it: {STOP}; or wait"),
        ("stop it; or wait", "then look", f"stop it: {STOP}; or wait; then look"),
    ],
)
def test_a_command_carries_out_the_first_way(words, further, whole):
    assert typed(words, STOP, further) == whole


@pytest.mark.parametrize(
    "remedy",
    [
        f"add a node, or stop it: {STOP}",
        f"stop it: {STOP}, or wait: {PATCH}",
        f"stop it (as: {STOP}",
        "see why pod web of…",
    ],
)
def test_a_step_that_is_cut_or_has_the_command_of_another_way_is_found(remedy):
    assert faults(remedy)


@pytest.mark.parametrize(
    "remedy",
    [
        REMEDY,
        f"Do not restart it, or let a drain shut it down: it has other disks: {PATCH}",
        "add a node, or free room: kubectl describe node a",
        f"update it to 1.8 or later; or stop it: {STOP}",
    ],
)
def test_a_whole_remedy_is_right(remedy):
    assert not faults(remedy)
