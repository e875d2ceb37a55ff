"""Pieces of sentences."""

import pytest

from tests.for_each import for_each
from virt_admit.model import messages
from virt_admit.model.kubernetes.objects import Path


@pytest.mark.parametrize(
    ("items", "width", "text"),
    [
        ([], 120, ""),
        (["a"], 120, "a"),
        (["a", "b"], 120, "a, b"),
        (list("abcde"), 120, "a, b, c, d, e"),
        (list("abcdefg"), 120, "a, b, c, d, e and 2 more"),
        (["shop/database", "shop/web"], 20, "shop/database and 1 more"),
        (["a-name-that-is-too-long"], 5, "a-name-that-is-too-long"),
    ],
)
def test_names(items, width, text):
    assert messages.names(items, width) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_count(number, text):
    assert messages.count(number, "node") == text


def test_the_first_text_that_fits_is_taken():
    path, rule = Path("spec", "x"), "some-rule"
    room = 256 - len("spec.x:  [virt-admit/some-rule]")
    assert messages.first_that_fits(path, rule, "a" * room, "b") == "a" * room
    assert messages.first_that_fits(path, rule, "a" * (room + 1), "b") == "b"
    assert messages.first_that_fits(path, rule, "a" * 300, "b" * 300) == "b" * 300


@for_each(
    "word, suggestion",
    [
        ("livemigrate", "LiveMigrate"),
        ("LiveMigrat", "LiveMigrate"),
        ("LiveMigrateIfPossibl", "LiveMigrateIfPossible"),
        ("Shutdown", "None"),
        ("Nonee", "None"),
        ("Evict", None),
        ("", None),
        ("o", None),
        (True, None),
        ("x" * 1_000_000, None),
    ],
)
def test_what_was_meant(word, suggestion):
    known = ("None", "LiveMigrate", "LiveMigrateIfPossible")
    assert messages.did_you_mean(word, known, {"shutdown": "None"}) == suggestion


@pytest.mark.parametrize(("length", "text"), [(40, "abc: def ghi: jkl"), (11, "abc…hi: jkl"), (5, "a…jkl"), (1, "…")])
def test_the_end_of_a_failure_stays(length, text):
    found = messages.cut_middle("abc: def ghi: jkl", length)
    assert (found, len(found) <= length) == (text, True)


def test_a_text_that_is_cut_in_its_middle_has_whole_words():
    text = "no node that could take it has the frequency 1995312000, which KubeVirt chose at its start"
    assert messages.cut_middle(text, 60, parts=2) == "no node that could take it… KubeVirt chose at its start"
    assert all(len(messages.cut_middle(text, length, parts=2)) <= length for length in range(1, 100))
    features = "it lacks vmx-rdrand-exit,vmx-vmfunc,vmx-rdseed-exit,vmx-posted-intr"
    assert messages.cut_middle(features, 50).endswith("… vmx-rdseed-exit,vmx-posted-intr")
