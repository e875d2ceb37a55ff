"""Limits of health checks: counts, percentages and how they round."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.for_each import for_each
from virt_admit.model.kubernetes import units
from virt_admit.model.kubernetes.int_or_percent import (
    INT_OR_PERCENT,
    Fault,
    IntOrPercent,
    LimitError,
    LimitKind,
    allowed_unhealthy,
    parse_int_or_percent,
)
from virt_admit.model.kubernetes.units import (
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    admits,
    show,
)

MHC, CAPI, MAX, MIN = (
    LimitKind.MACHINE_API,
    LimitKind.CLUSTER_API,
    LimitKind.NODE_MAX_UNHEALTHY,
    LimitKind.NODE_MIN_HEALTHY,
)


@for_each("limit", LimitKind)
@for_each(
    "value, expected",
    [
        (0, IntOrPercent(0)),
        (3, IntOrPercent(3)),
        (2**31 - 1, IntOrPercent(2**31 - 1)),
        ("0%", IntOrPercent(0, percent=True)),
        ("00%", IntOrPercent(0, percent=True)),
        ("40%", IntOrPercent(40, percent=True)),
        ("100%", IntOrPercent(100, percent=True)),
    ],
)
def test_limits(limit: LimitKind, value: object, expected: IntOrPercent) -> None:
    assert parse_int_or_percent(value, limit) == expected


@for_each(
    "value, limit, fault",
    [
        *((value, MHC, Fault.TYPE) for value in (None, True, False, 1.0, 40.5, [], {}, ["40%"])),
        *(
            (text, MHC, Fault.FORM)
            for text in (
                "",
                "%",
                "abc",
                "40 %",
                "40%%",
                "+3",
                "1.5%",
                "40%\n",
                "3\n",
                "\u0663",
                "040%",
            )
        ),
        *((value, MHC, Fault.NEGATIVE) for value in (-1, -(2**40), "-1", "-5%")),
        *((value, MHC, Fault.TOO_LARGE) for value in (2**31, 4294967296, "2147483648", "9" * 5000)),
        *((text, MHC, Fault.ABOVE_100) for text in ("101%", "150%", "9" * 5000 + "%")),
        ("3", CAPI, Fault.DIGITS),
        ("3", MAX, Fault.DIGITS),
        ("3", MIN, Fault.DIGITS),
        ("9" * 20, MAX, Fault.TOO_LARGE),
        ("150%", CAPI, Fault.ABOVE_100),
    ],
)
def test_no_limits(value: object, limit: LimitKind, fault: Fault) -> None:
    with pytest.raises(LimitError) as error:
        parse_int_or_percent(value, limit)
    assert error.value.fault is fault
    assert len(str(error.value)) < 150


def test_digits_in_a_string_are_a_count_for_the_machine_api_alone() -> None:
    assert parse_int_or_percent("3", MHC) == parse_int_or_percent("00003", MHC) == IntOrPercent(3)
    assert parse_int_or_percent("2147483647", MHC) == IntOrPercent(2**31 - 1)


def test_cluster_api_has_no_pattern() -> None:
    assert parse_int_or_percent("040%", CAPI) == IntOrPercent(40, percent=True)


@given(
    st.one_of(
        st.integers(),
        st.text(alphabet="0123456789%-+ \n\u0663", max_size=6),
        st.floats(),
        st.booleans(),
    )
)
def test_limits_of_the_machine_api_follow_their_schema(value: object) -> None:
    """Schema and controller agree on what we take, and on nothing else."""
    if isinstance(value, str):
        sound = admits(INT_OR_PERCENT, value) and ("%" in value or int(value) < 2**31)
    else:
        sound = type(value) is int and 0 <= value < 2**31
    try:
        limit = parse_int_or_percent(value, MHC)
    except LimitError:
        assert not sound
    else:
        assert sound
        assert (limit.number, limit.percent) == (int(str(value).rstrip("%")), "%" in str(value))


# allowed unhealthy for MHC / NHC maxUnhealthy / NHC minHealthy (min -> allowed)
ROUNDING = """
    | 10% | 0 / 1 / 1→3 | 0 / 1 / 1→7 | 0 / 1 / 1→8 | 1 / 2 / 2→10 | 1 / 2 / 2→13 | 2 / 2 / 2→18 |
    | 25% | 1 / 1 / 1→3 | 2 / 2 / 2→6 | 2 / 3 / 3→6 | 3 / 3 / 3→9 | 3 / 4 / 4→11 | 5 / 5 / 5→15 |
    | 30% | 1 / 2 / 2→2 | 2 / 3 / 3→5 | 2 / 3 / 3→6 | 3 / 4 / 4→8 | 4 / 5 / 5→10 | 6 / 6 / 6→14 |
    | 40% | 1 / 2 / 2→2 | 3 / 4 / 4→4 | 3 / 4 / 4→5 | 4 / 5 / 5→7 | 6 / 6 / 6→9 | 8 / 8 / 8→12 |
    | 49% | 1 / 2 / 2→2 | 3 / 4 / 4→4 | 4 / 5 / 5→4 | 5 / 6 / 6→6 | 7 / 8 / 8→7 | 9 / 10 / 10→10 |
    | 70% | 2 / 3 / 3→1 | 5 / 6 / 6→2 | 6 / 7 / 7→2 | 8 / 9 / 9→3 | 10 / 11 / 11→4 | 14 / 14 / 14→6 |
"""  # noqa: E501


def test_rounding() -> None:
    seen = 0
    for row in ROUNDING.strip().splitlines():
        percent, *cells = (cell.strip() for cell in row.strip(" |").split("|"))
        for total, cell in zip((4, 8, 9, 12, 15, 20), cells, strict=True):
            floor, ceiling, least, rest = map(int, re.findall(r"\d+", cell))
            value = parse_int_or_percent(percent, MHC)
            assert (
                allowed_unhealthy(value, total, MHC)
                == allowed_unhealthy(value, total, CAPI)
                == floor
            )
            assert allowed_unhealthy(value, total, MAX) == ceiling
            assert allowed_unhealthy(value, total, MIN) == rest == total - least
            seen += 1
    assert seen == 36


@for_each(
    "limit, value, total, allowed",
    [
        (MHC, IntOrPercent(3), 2, 3),
        (CAPI, IntOrPercent(3), 9, 3),
        (MAX, IntOrPercent(3), 3, 3),
        (MAX, IntOrPercent(3), 2, 0),  # the controller stops with an error
        (MIN, IntOrPercent(3), 5, 2),
        (MIN, IntOrPercent(3), 2, 0),
        (MIN, IntOrPercent(100, percent=True), 7, 0),
        (MAX, IntOrPercent(100, percent=True), 7, 7),
        (MHC, IntOrPercent(40, percent=True), 2, 0),
        (MHC, IntOrPercent(2**31 - 1), 0, 2**31 - 1),
    ],
)
def test_allowed_unhealthy(limit: LimitKind, value: IntOrPercent, total: int, allowed: int) -> None:
    assert allowed_unhealthy(value, total, limit) == allowed


@given(st.integers(0, 100), st.integers(0, 10**6))
def test_percentages_round_as_exact_arithmetic_does(percent: int, total: int) -> None:
    share = Fraction(percent * total, 100)
    value = IntOrPercent(percent, percent=True)
    assert allowed_unhealthy(value, total, MHC) == math.floor(share)
    assert allowed_unhealthy(value, total, MAX) == math.ceil(share)
    assert allowed_unhealthy(value, total, MIN) == total - math.ceil(share)


def test_limits_print_as_they_are_written() -> None:
    assert [str(IntOrPercent(3)), str(IntOrPercent(40, percent=True))] == ["3", "40%"]


@for_each(
    "value, shown",
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (300, "300"),
        (1.5, "1.5"),
        ("5 min", "'5 min'"),
        ("a\nb\ud800", r"'a\nb\ud800'"),
        ("x" * 100, "'" + "x" * 57 + "...'"),
        ([1], "a list"),
        ({"a": 1}, "an object"),
    ],
)
def test_show(value: object, shown: str) -> None:
    assert show(value) == shown


def test_units_agree() -> None:
    assert (units.NANOSECOND, MICROSECOND, MILLISECOND) == (1, 10**3, 10**6)
    assert (SECOND, MINUTE, HOUR) == (10**9, 60 * 10**9, 3600 * 10**9)
