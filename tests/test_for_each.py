"""One item for many values hides none of them: all are tried, and those that fail are named."""

from __future__ import annotations

import pytest

from tests.for_each import check_each, for_each


def odd(number: int) -> None:
    assert number % 2, "even"


def test_each_value_that_fails_is_named_and_the_others_are_tried() -> None:
    tried = []

    @for_each("number", [1, 2, 3, 4, 5])
    def check(number: int) -> None:
        tried.append(number)
        odd(number)

    with pytest.raises(ExceptionGroup, match="2 of 5 fail") as caught:
        check()
    assert tried == [1, 2, 3, 4, 5]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["failed for: 2"],
        ["failed for: 4"],
    ]


def test_a_single_failure_keeps_its_traceback() -> None:
    with pytest.raises(AssertionError, match="even") as caught:
        check_each([1, 2], odd, lambda number: f"number {number}")
    assert caught.value.__notes__ == ["failed for: number 2"]


def test_a_failure_that_pytest_raises_is_one_too() -> None:
    with pytest.raises(pytest.fail.Exception, match="no"):
        check_each([1], lambda _: pytest.fail("no"), str)


def test_a_value_that_is_skipped_hides_no_failure_of_the_others() -> None:
    def check(number: int) -> None:
        if number == 1:
            pytest.skip("not here")
        odd(number)

    with pytest.raises(AssertionError, match="even"):
        check_each([1, 2], check, str)
    with pytest.raises(pytest.skip.Exception):
        check_each([1, 3], check, str)


def test_nothing_to_check_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="nothing to check"):
        check_each([], odd, str)


@for_each("left, right", [(1, 2), (3, 4)])
@pytest.mark.parametrize("shift", [0, 2])
def test_fixtures_and_other_parameters_stay(
    left: int, right: int, shift: int, tmp_path: object
) -> None:
    assert right - left == 1
    assert tmp_path
    assert (left + shift) % 2
