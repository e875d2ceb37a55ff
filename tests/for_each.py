"""One item of pytest for many values: to collect,
send and report an item costs more than what most of them check.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

LONGEST = 200
"""Characters of a value in the name of a call that failed."""


def check_each(
    values: Iterable[Any], check: Callable[[Any], None], name: Callable[[Any], str]
) -> None:
    """Check every value, also after one that fails; the failure names each value that fails,
    with what is wrong.

    No value may leave anything behind for the next one. No values at all are a failure.
    """
    failed: list[BaseException] = []
    skipped: BaseException | None = None
    checked = 0
    for checked, value in enumerate(values, 1):  # noqa: B007 - the count is asked below
        try:
            check(value)
        except pytest.skip.Exception as error:
            skipped = error
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"failed for: {name(value)}")
            failed.append(error)
    assert checked, "nothing to check"
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {checked} fail", failed)
    if skipped:
        raise skipped


def for_each(
    names: str, values: Iterable[Any], name: Callable[..., str] | None = None
) -> Callable[[Any], Any]:
    """As ``pytest.mark.parametrize``, but with one item for all values, for tests that share
    nothing that changes.

    Fixtures are made once. ``name`` names the arguments of one call in the failure; without it they
    are shown.
    """
    parameters = [each.strip() for each in names.split(",")]
    rows = [_row(value, len(parameters), name) for value in values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def test_of_all(*args: Any, **fixtures: Any) -> None:
            def check(row: tuple[str, tuple[Any, ...]]) -> None:
                test(*args, **fixtures, **dict(zip(parameters, row[1], strict=True)))

            check_each(rows, check, lambda row: row[0])

        kept = [
            each
            for each in inspect.signature(test).parameters.values()
            if each.name not in parameters
        ]
        test_of_all.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return test_of_all

    return decorate


def _row(
    value: Any, parameters: int, name: Callable[..., str] | None
) -> tuple[str, tuple[Any, ...]]:
    """Return the title and the arguments of a call, of a ``pytest.param`` too."""
    if isinstance(value, type(pytest.param())):
        assert not value.marks, "a value with a mark needs an item of its own"
        return str(value.id or value.values), tuple(value.values)
    row = tuple(value) if parameters > 1 else (value,)
    return name(*row) if name else ", ".join(repr(each)[:LONGEST] for each in row), row
