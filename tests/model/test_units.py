"""Durations, quantities and limits against tables, and against a second, plainer reading of their grammars."""

from __future__ import annotations

import math
import re
import string
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virt_admit.model import units
from virt_admit.model.units import (
    DURATION,
    HEALTHY_DELAY,
    HOUR,
    INT_OR_PERCENT,
    MAX_DURATION,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    NODE_STARTUP_TIMEOUT,
    SECOND,
    Fault,
    IntOrPercent,
    LimitError,
    LimitKind,
    admits,
    allowed_unhealthy,
    format_duration,
    parse_duration,
    parse_int_or_percent,
    parse_quantity,
    show,
)

# --- durations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0s", 0),
        ("00s", 0),
        ("1m0s", MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        (".5s", 500 * MILLISECOND),
        ("5.m", 5 * MINUTE),
        ("1h1h", 2 * HOUR),
        ("1s1h", HOUR + SECOND),
        ("+5m", 5 * MINUTE),
        ("-5m", -5 * MINUTE),
        ("-1m1s", -61 * SECOND),
        ("1us1\u00b5s1\u03bcs", 3 * MICROSECOND),
        ("7ns", 7),
        ("0.9ns", 0),
        ("0.1000000000000000000000000000h", 6 * MINUTE),
        ("0.3333333333333333333h", 20 * MINUTE),
        ("0.9223372036854775808h", 3_320_413_933_267),
        ("0.99999999999999999999999h", HOUR),
        ("0.0000000000000000000000000001h", 0),
        ("9223372036854775807ns", MAX_DURATION),
        ("2562047h47m16.854775807s", MAX_DURATION),
        ("-9223372036854775808ns", -(2**63)),
        ("0" * 500 + "5m", 5 * MINUTE),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "value",
    [
        *("", "60", "00", "1d", "1w", "1M", "1H", "5min", "5sec", "1m 0s", " 5m", "5m ", "5m\n", "1e3s", "100000000h"),
        *("+", "-", ".", ".s", "s", "--5m", "+-5m", "5m-1s", "1_0s", "5,5s", "1.2.3s", "0x5s", "abc5m", "5m\x00"),
        *("\u0663s", "\uff15s", "\ud800", "9999999h", "1" * 5000 + "s", "1s" * 501),
        *("9223372036854775808ns", "-9223372036854775809ns", "2562047h47m16.854775808s"),
        *(300, 0, 5.0, True, None, [], {}, ["5m"]),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_no_durations(value: object) -> None:
    with pytest.raises(ValueError, match="duration") as error:
        parse_duration(value)
    assert len(str(error.value)) < 200
    assert str(error.value).isprintable()


def go_duration(text: str) -> int | None:
    """A second reading of the grammar, one character after the other; None where there is no duration."""
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest:
        return None
    sizes = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
    total = 0
    while rest:
        number = ""
        while rest and rest[0] in "0123456789.":
            number, rest = number + rest[0], rest[1:]
        unit = ""
        while rest and rest[0] not in "0123456789.":
            unit, rest = unit + rest[0], rest[1:]
        if number.count(".") > 1 or not number.strip(".") or unit not in sizes:
            return None
        whole, _, fraction = number.partition(".")
        total += int(whole or "0") * sizes[unit]
        total += int(float(int(fraction or "0")) * (float(sizes[unit]) / 10 ** len(fraction)))
    if total > 2**63 - (sign > 0):
        return None
    return sign * total


DURATION_LIKE = st.lists(
    st.one_of(
        st.sampled_from(
            [*"0123456789.+- \n", "ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "\u0663", "\uff15", "_"]
        ),
        st.sampled_from(["0", "5m", "1.5h", "9223372036854775808", "2562047", "47", "16.854775807"]),
    ),
    max_size=8,
).map("".join)


@given(DURATION_LIKE)
@example("-9223372036854775808ns")
@example("0s\n")
def test_durations_follow_the_grammar(text: str) -> None:
    expected = go_duration(text)
    if expected is None:
        with pytest.raises(ValueError, match="duration"):
            parse_duration(text)
    else:
        assert parse_duration(text) == expected


@given(st.integers(-(2**63), 2**63 - 1))
@example(-1)
@example(1_000_000_001)
def test_formatted_durations_read_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (5 * MINUTE, "5m"),
        (90 * MINUTE, "1h30m"),
        (HOUR + SECOND, "1h1s"),
        (90 * SECOND, "1m30s"),
        (1500 * MILLISECOND, "1.5s"),
        (MINUTE + 1, "1m0.000000001s"),
        (500 * MILLISECOND, "500ms"),
        (1500 * MICROSECOND, "1.5ms"),
        (1500, "1.5µs"),
        (7, "7ns"),
        (-5 * MINUTE, "-5m"),
        (-7, "-7ns"),
    ],
)
def test_format_duration(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text


SCHEMAS = {
    # as the CRDs write them; Go's $ is Python's \Z
    DURATION: r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+\Z",
    NODE_STARTUP_TIMEOUT: r"^0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+\Z",
    HEALTHY_DELAY: r"^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+\Z",
    INT_OR_PERCENT: r"^((100|[0-9]{1,2})%|[0-9]+)\Z",
}


@pytest.mark.parametrize("pattern", SCHEMAS)
@given(text=DURATION_LIKE | st.text(alphabet="0123456789%+-.\n\u0663\uff15", max_size=6))
def test_patterns_admit_what_the_schemas_admit(pattern: re.Pattern[str], text: str) -> None:
    assert admits(pattern, text) == bool(re.search(SCHEMAS[pattern], text))


@pytest.mark.parametrize(
    ("pattern", "admitted", "refused"),
    [
        (DURATION, ["5m", "1.5h", "9999999h"], ["+5m", "-5m", ".5s", "5.m", "0", "5m\n", "1μs", "\u0663s"]),
        (NODE_STARTUP_TIMEOUT, ["0", "-5m", "abc5m", "0abc", "00", " 5m"], ["", "5", "5m\n", "5.m", "m"]),
        (HEALTHY_DELAY, ["-5m", "5m"], ["--5m", "+5m", "0"]),
        (INT_OR_PERCENT, ["3", "100%", "00", "99999999999999999999"], ["101%", "-1", "3\n", "%", "\u0663%", "1.5"]),
    ],
)
def test_patterns(pattern: re.Pattern[str], admitted: list[str], refused: list[str]) -> None:
    assert [text for text in admitted + refused if admits(pattern, text)] == admitted


@pytest.mark.parametrize("text", ["5" * 10**5, "5s" * 50_000 + "x", "5." * 50_000, "0." + "0" * 10**5])
@pytest.mark.parametrize("pattern", SCHEMAS)
def test_long_texts_are_read_in_linear_time(pattern: re.Pattern[str], text: str) -> None:
    assert admits(pattern, text) == (
        (pattern is INT_OR_PERCENT and text.isdigit()) or (pattern is NODE_STARTUP_TIMEOUT and text[0] == "0")
    )


@pytest.mark.parametrize("text", ["+5m", ".5s", "5.m", "-5m", "1μs", "0"])
def test_a_schema_refuses_what_go_would_read(text: str) -> None:
    parse_duration(text)
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text, DURATION)


# --- quantities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("64Mi", 64 * 2**20),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("1E", 10**18),
        ("1Ei", 2**60),
        (".5Gi", 2**29),
        ("5.", 5),
        ("5.Ki", 5120),
        ("64m", Fraction(64, 1000)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("1k", 1000),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1Ki", 2**10),
        ("1Gi", 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("-1Gi", -(2**30)),
        ("+1", 1),
        ("0.1", Fraction(1, 10)),
        ("007", 7),
    ],
)
def test_quantities(text: str, number: Fraction) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize(
    "value",
    [
        *("", "64 MiB", "64MB", "64mi", "1K", "0x10", "1e1.5", "1e", "1ee3", "1e--3", "1e3Ki", "1EE3", "Ki", ".", "+"),
        *(" 1", "1 ", "1\n", "1_0", "\u0663", "\uff11", "1,5", "1.2.3", "inf", "nan", "1/2", "1" * 1001),
        *(5, 1.5, True, None, [], {}),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_no_quantities(value: object) -> None:
    with pytest.raises(ValueError, match="quantity") as error:
        parse_quantity(value)
    assert len(str(error.value)) < 200


def test_integers_are_quantities_where_the_field_takes_both() -> None:
    assert parse_quantity(-5, integers=True) == -5
    for value in (True, 1.5, None):
        with pytest.raises(ValueError, match="quantity"):
            parse_quantity(value, integers=True)


@pytest.mark.parametrize("exponent", ["1001", "99999999999", "9" * 900])
def test_monstrous_exponents_are_merely_large(exponent: str) -> None:
    assert parse_quantity(f"1e{exponent}") == 10**1000
    assert parse_quantity(f"1e-{exponent}") == Fraction(1, 10**1000)


@given(st.text(alphabet=string.digits + "+-.eEnumkKMGTPi \n\u0663", max_size=8))
@example("1E5")
@example("-.5e-3")
def test_quantities_follow_the_grammar(text: str) -> None:
    expected = go_quantity(text)
    if expected is None:
        with pytest.raises(ValueError, match="quantity"):
            parse_quantity(text)
    elif abs(expected) < 10**1000:
        assert parse_quantity(text) == expected


def go_quantity(text: str) -> Fraction | None:
    """A second reading of the grammar; None where there is no quantity."""
    number, rest = "", text
    if rest[:1] in ("+", "-"):
        number, rest = rest[0], rest[1:]
    while rest and rest[0] in "0123456789.":
        number, rest = number + rest[0], rest[1:]
    if number.count(".") > 1 or not number.strip("+-."):
        return None
    factors = dict(zip(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), range(-9, 19, 3), strict=True))
    if rest in factors:
        return Fraction(number) * Fraction(10) ** factors[rest]
    if rest in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        return Fraction(number) * 1024 ** (1 + "KMGTPE".index(rest[0]))
    exponent = rest[2:] if rest[1:2] in ("+", "-") else rest[1:]
    if rest[0] not in "eE" or not exponent or set(exponent) - set(string.digits):
        return None
    return Fraction(number) * Fraction(10) ** max(-1000, min(1000, int(rest[1:])))


# --- limits ------------------------------------------------------------------------------------------------------

MHC, CAPI, MAX, MIN = (
    LimitKind.MACHINE_API,
    LimitKind.CLUSTER_API,
    LimitKind.NODE_MAX_UNHEALTHY,
    LimitKind.NODE_MIN_HEALTHY,
)


@pytest.mark.parametrize("limit", LimitKind)
@pytest.mark.parametrize(
    ("value", "expected"),
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


@pytest.mark.parametrize(
    ("value", "limit", "fault"),
    [
        *((value, MHC, Fault.TYPE) for value in (None, True, False, 1.0, 40.5, [], {}, ["40%"])),
        *(
            (text, MHC, Fault.FORM)
            for text in ("", "%", "abc", "40 %", "40%%", "+3", "1.5%", "40%\n", "3\n", "\u0663", "040%")
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
    ids=lambda value: repr(value)[:20],
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


@given(st.one_of(st.integers(), st.text(alphabet="0123456789%-+ \n\u0663", max_size=6), st.floats(), st.booleans()))
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
"""


def test_rounding() -> None:
    seen = 0
    for row in ROUNDING.strip().splitlines():
        percent, *cells = (cell.strip() for cell in row.strip(" |").split("|"))
        for total, cell in zip((4, 8, 9, 12, 15, 20), cells, strict=True):
            floor, ceiling, least, rest = map(int, re.findall(r"\d+", cell))
            value = parse_int_or_percent(percent, MHC)
            assert allowed_unhealthy(value, total, MHC) == allowed_unhealthy(value, total, CAPI) == floor
            assert allowed_unhealthy(value, total, MAX) == ceiling
            assert allowed_unhealthy(value, total, MIN) == rest == total - least
            seen += 1
    assert seen == 36


@pytest.mark.parametrize(
    ("limit", "value", "total", "allowed"),
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


@pytest.mark.parametrize(
    ("value", "shown"),
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
