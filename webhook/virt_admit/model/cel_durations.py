"""Durations in CEL, as ``parse_duration`` reads them.

CEL's ``duration()`` is Go's ``time.ParseDuration``, but an expression fails for what is not a
duration, and then it judges nothing. So patterns decide first, and the length. Lengths above
``_LONG`` (290 years) count as ``_LONG``.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.units import (
    HOUR,
    LONGEST,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    NANOSECOND,
    SECOND,
)

JUDGED: Final = 100
"""Characters of a duration that is judged:
longer ones would take more of the budget than a policy should.
"""
_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNIT: Final = "(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
_FORM: Final = cel.text(rf"^[+-]?(?:0|(?:{_NUMBER}{_UNIT})+)$")
_TOO_MANY_DIGITS: Final = cel.text("(?:^|[^0-9.])0*[1-9][0-9]{19}")
"""20 digits exceed the longest duration in nanoseconds,
and ``double()`` fails for more than 308.
"""
_UNITS: Final = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,
    "\u03bcs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_LENGTHS: Final = (
    "{" + ", ".join(f"{cel.text(unit)}: {length}.0" for unit, length in _UNITS.items()) + "}"
)
_TOTAL: Final = (
    f"words.findAll({cel.text(_NUMBER + _UNIT)})"
    f".map(part, double(part.find('^[0-9.]+')) * {_LENGTHS}[part.find('[^0-9.]+$')]).sum()"
)
_LONG: Final = 290 * 365 * 24 * HOUR
_LONGEST: Final = f"{float(2**63):.1f}"
_FITS: Final = f"(!words.matches({_TOO_MANY_DIGITS}) && {_TOTAL} <= {_LONGEST})"
_NANOSECONDS: Final = (
    f"({_TOTAL} > {float(_LONG):.1f} ? (words.startsWith('-') ? -{_LONG} : {_LONG}) : "
    "int(duration(words)))"
)


def parsed(value: str, schema: str = "", *, only_if: str = "true") -> str:
    """Return a list with the nanoseconds of a duration; empty if the value is not a valid one.

    Args:
        value: any value.
        schema: a pattern that the text must match as well.
        only_if: when the schema applies.
    """
    admitted = f" && (!({only_if}) || words.matches({cel.pattern(schema)}))" if schema else ""
    return (
        f"[dyn({value})].filter(words, type(words) == string && words.size() <= {JUDGED} && "
        f"words.matches({_FORM}){admitted} && {_FITS}).map(words, {_NANOSECONDS})"
    )


def is_invalid(value: str, schema: str = "", *, only_if: str = "true") -> str:
    """Return whether a value is not a valid duration. Arguments as for ``parsed``."""
    too_long = (
        f"type(words) == string && words.size() > {JUDGED} && words.size() <= {LONGEST} && "
        f"words.matches({_FORM})"
    )
    valid = parsed(value, schema, only_if=only_if)
    return f"({valid}.size() == 0 && ![dyn({value})].exists(words, {too_long}))"


def problem(value: str) -> str:
    """Return what is wrong with a value that is not a valid duration,
    in the words of ``parse_duration``.
    """
    return (
        f"[dyn({value})].map(words, {cel.shown('words')} + (type(words) != string ? ' is not a "
        """duration: write a string with a unit, such as "300s" or "5m"' : words.size() <= """
        f"{JUDGED} && words.matches({_FORM}) && !{_FITS} ? ' is longer than a duration can be, "
        "which is about 292 years (2562047h)' : ' is not a duration: write numbers with a unit "
        "(ms, s, m, h), such as 90s or 1h30m'))[0]"
    )


def invalid(field: str, path: str, effect: str, schema: str = "") -> cel.Denial:
    """Return the denial of an optional field that is not a valid duration.

    Args:
        field: the field, optional.
        path: its path, a CEL text.
        effect: what follows the problem in the message.
        schema: a pattern that the text must match as well.
    """
    return cel.Denial(
        when=f"{cel.present(field)} && {is_invalid(f'{field}.orValue(null)', schema)}",
        path=path,
        message=f"{problem(f'{field}.orValue(null)')} + {cel.text(effect)}",
        value=f"{field}.orValue(null)",
    )


def below(field: str, path: str, least: int, message: str, schema: str = "") -> cel.Denial:
    """Return the denial of an optional field with a duration of fewer than ``least`` nanoseconds.

    Args:
        field: the field, optional.
        path: its path, a CEL text.
        least: nanoseconds.
        message: what follows the value in the message.
        schema: a pattern that the text must match as well.
    """
    value = f"{field}.orValue(null)"
    return cel.Denial(
        when=f"{cel.present(field)} && {parsed(value, schema)}.exists(time, time < {least})",
        path=path,
        message=f"{cel.shown(value)} + {cel.text(message)}",
        value=value,
    )
