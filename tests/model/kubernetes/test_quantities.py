"""Quantities as the API server reads them."""

from __future__ import annotations

import string
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.for_each import for_each
from virt_admit.model.kubernetes.quantities import LARGEST, parse_quantity


@for_each(
    "text, number",
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


@for_each(
    "value",
    [
        *(
            "",
            "64 MiB",
            "64MB",
            "64mi",
            "1K",
            "0x10",
            "1e1.5",
            "1e",
            "1ee3",
            "1e--3",
            "1e3Ki",
            "1EE3",
            "Ki",
            ".",
            "+",
        ),
        *(
            " 1",
            "1 ",
            "1\n",
            "1_0",
            "\u0663",
            "\uff11",
            "1,5",
            "1.2.3",
            "inf",
            "nan",
            "1/2",
            "1" * 1001,
        ),
        *(5, 1.5, True, None, [], {}),
    ],
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


@pytest.mark.parametrize("exponent", ["19", "1001", "99999999999", "9" * 900])
def test_monstrous_exponents_are_merely_large(exponent: str) -> None:
    assert parse_quantity(f"1e{exponent}") == LARGEST
    assert parse_quantity(f"-1e{exponent}") == -LARGEST
    assert 0 < parse_quantity(f"1e-{exponent}") <= Fraction(1, 10**19)


@pytest.mark.parametrize("value", ["9" * 999, "16Ei", 10**30])
def test_large_numbers_are_the_largest_of_the_api_server(value: object) -> None:
    assert parse_quantity(value, integers=True) == LARGEST


@given(st.text(alphabet=string.digits + "+-.eEnumkKMGTPi \n\u0663", max_size=8))
@example("1E5")
@example("-.5e-3")
def test_quantities_follow_the_grammar(text: str) -> None:
    expected = go_quantity(text)
    if expected is None:
        with pytest.raises(ValueError, match="quantity"):
            parse_quantity(text)
    elif abs(expected) <= LARGEST:
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
    factors = dict(
        zip(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), range(-9, 19, 3), strict=True)
    )
    if rest in factors:
        return Fraction(number) * Fraction(10) ** factors[rest]
    if rest in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        return Fraction(number) * 1024 ** (1 + "KMGTPE".index(rest[0]))
    exponent = rest[2:] if rest[1:2] in ("+", "-") else rest[1:]
    if rest[0] not in "eE" or not exponent or set(exponent) - set(string.digits):
        return None
    return Fraction(number) * Fraction(10) ** max(-1000, min(1000, int(rest[1:])))
