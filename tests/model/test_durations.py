"""Durations as Go and the schemas of the API read them."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.for_each import for_each
from virt_admit.model.kubernetes.int_or_percent import INT_OR_PERCENT
from virt_admit.model.kubernetes.units import (
    DURATION,
    HEALTHY_DELAY,
    HOUR,
    MAX_DURATION,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    NODE_STARTUP_TIMEOUT,
    SECOND,
    admits,
    format_duration,
    parse_duration,
)


@for_each(
    "text, nanoseconds",
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


@for_each(
    "value",
    [
        *(
            "",
            "60",
            "00",
            "1d",
            "1w",
            "1M",
            "1H",
            "5min",
            "5sec",
            "1m 0s",
            " 5m",
            "5m ",
            "5m\n",
            "1e3s",
            "100000000h",
        ),
        *(
            "+",
            "-",
            ".",
            ".s",
            "s",
            "--5m",
            "+-5m",
            "5m-1s",
            "1_0s",
            "5,5s",
            "1.2.3s",
            "0x5s",
            "abc5m",
            "5m\x00",
        ),
        *("\u0663s", "\uff15s", "\ud800", "9999999h", "1" * 5000 + "s", "1s" * 501),
        *("9223372036854775808ns", "-9223372036854775809ns", "2562047h47m16.854775808s"),
        *(300, 0, 5.0, True, None, [], {}, ["5m"]),
    ],
)
def test_no_durations(value: object) -> None:
    with pytest.raises(ValueError, match="duration") as error:
        parse_duration(value)
    assert len(str(error.value)) < 200
    assert str(error.value).isprintable()


def go_duration(text: str) -> int | None:
    """A second reading of the grammar, one character after the other;
    None where there is no duration.
    """
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest:
        return None
    sizes = {
        "ns": 1,
        "us": 1000,
        "µs": 1000,
        "μs": 1000,
        "ms": 10**6,
        "s": 10**9,
        "m": 60 * 10**9,
        "h": 3600 * 10**9,
    }
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
            [
                *"0123456789.+- \n",
                "ns",
                "us",
                "µs",
                "μs",
                "ms",
                "s",
                "m",
                "h",
                "d",
                "\u0663",
                "\uff15",
                "_",
            ]
        ),
        st.sampled_from(
            ["0", "5m", "1.5h", "9223372036854775808", "2562047", "47", "16.854775807"]
        ),
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


@for_each(
    "nanoseconds, text",
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
def test_patterns_admit_what_the_schemas_admit(pattern: str, text: str) -> None:
    assert admits(pattern, text) == bool(re.search(SCHEMAS[pattern], text))


@pytest.mark.parametrize(
    ("pattern", "admitted", "refused"),
    [
        (
            DURATION,
            ["5m", "1.5h", "9999999h"],
            ["+5m", "-5m", ".5s", "5.m", "0", "5m\n", "1μs", "\u0663s"],
        ),
        (
            NODE_STARTUP_TIMEOUT,
            ["0", "-5m", "abc5m", "0abc", "00", " 5m"],
            ["", "5", "5m\n", "5.m", "m"],
        ),
        (HEALTHY_DELAY, ["-5m", "5m"], ["--5m", "+5m", "0"]),
        (
            INT_OR_PERCENT,
            ["3", "100%", "00", "99999999999999999999"],
            ["101%", "-1", "3\n", "%", "\u0663%", "1.5"],
        ),
    ],
)
def test_patterns(pattern: str, admitted: list[str], refused: list[str]) -> None:
    assert [text for text in admitted + refused if admits(pattern, text)] == admitted


@for_each("text", ["5" * 10**5, "5s" * 50_000 + "x", "5." * 50_000, "0." + "0" * 10**5])
@for_each("pattern", SCHEMAS)
def test_long_texts_are_read_in_linear_time(pattern: str, text: str) -> None:
    assert admits(pattern, text) == (
        (pattern is INT_OR_PERCENT and text.isdigit())
        or (pattern is NODE_STARTUP_TIMEOUT and text[0] == "0")
    )


@pytest.mark.parametrize("text", ["+5m", ".5s", "5.m", "-5m", "1μs", "0"])
def test_a_schema_refuses_what_go_would_read(text: str) -> None:
    parse_duration(text)
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text, DURATION)
