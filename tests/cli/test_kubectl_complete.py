"""Completion of ``kubectl virt-admit``, as kubectl asks the plugin for it."""

from __future__ import annotations

import pytest

from virt_admit.cli.kubectl_complete import answer


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["sc"], ["scan\tJudge a live cluster or a snapshot of one.", ":4"]),
        (["check", "--fail-on", "w"], ["warn", ":4"]),
        (["check", "man"], [":0"]),
        (["check", "--cluster", "snap"], [":0"]),
        (["certs", "issue", ""], [":16"]),
        (["check", "--no-such"], [":4"]),
        (["nonsense", "x"], [":4"]),
    ],
)
def test_completions_and_the_directive(words, lines):
    assert list(answer(words)) == lines


def test_without_a_word_it_offers_the_verbs():
    *offered, directive = answer([])
    assert {"check", "scan", "doctor"} <= {line.partition("\t")[0] for line in offered}
    assert directive == ":4"


def test_a_help_text_is_one_line():
    assert all(line.count("\t") <= 1 for line in answer(["check", "--"]))
    assert len(list(answer(["check", "--"]))) > 10
