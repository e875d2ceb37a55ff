"""Pieces of sentences."""

import pytest

from webhook.model import texts


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
    assert texts.names(items, width) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_count(number, text):
    assert texts.count(number, "node") == text
