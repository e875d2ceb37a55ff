"""The table of ``make bench``: what is stored is read again, and what has grown is named."""

from __future__ import annotations

from tests.bench import PAGE, Ratio, slower, stored, with_table


def test_the_stored_table_is_read_again() -> None:
    page = with_table(
        PAGE.read_text(), [Ratio("a review, by its peer", 30, 20, 8.0), Ratio("a look-up", 10, 10)]
    )
    assert stored(page) == {"a review, by its peer": 1.5, "a look-up": 1.0}
    assert with_table(page, [Ratio("a look-up", 10, 10)]) == with_table(
        PAGE.read_text(), [Ratio("a look-up", 10, 10)]
    )


def test_only_what_has_grown_by_more_than_chance_is_slower() -> None:
    before = {"same": 1.0, "noise": 1.0, "slower": 1.0, "faster": 2.0}
    found = [
        Ratio("same", 10, 10),
        Ratio("noise", 11, 10),
        Ratio("slower", 13, 10),
        Ratio("faster", 9, 10),
        Ratio("new", 99, 1),
    ]
    assert slower(found, before) == ["slower"]


def test_more_than_its_bound_is_too_much() -> None:
    assert Ratio("a review", 90, 10, 8.0).is_too_much
    assert not Ratio("a review", 80, 10, 8.0).is_too_much
    assert not Ratio("a review", 90, 10).is_too_much


def test_the_page_has_the_last_results() -> None:
    assert len(stored(PAGE.read_text())) > 20
