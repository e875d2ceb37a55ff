"""Durations that Kubernetes writes as text, and what durations,
quantities and limits have in common.

A duration or a limit is checked twice: by the pattern of the schema, and by the Go code that
decodes it. A value must pass both, and each check accepts values that the other rejects. The
patterns therefore have names here, and each parser follows the Go code.

Python and Go differ in ways that matter here, in ``quantities`` and in ``int_or_percent``. ``$`` in
Go is the end of the text, never the position before a final newline. Digits are ``[0-9]``, while
``int()`` accepts all scripts, blanks and underscores. A boolean is an ``int`` in Python but not an
integer in JSON. No pattern backtracks more than once over a text, because texts are untrusted and
may be megabytes long.
"""

from __future__ import annotations

import re
from typing import Final


def show(value: object) -> str:
    """Quote a JSON value for a message: printable, on one line and short, whatever the input."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= 60 else value[:57] + "...")
        case int() | float():
            return repr(value)
        case list():
            return "a list"
        case _:
            return "an object"


LONGEST: Final = 1_000
"""Characters of a duration or a quantity. Go sets no limit,
but parsing longer texts only costs time.
"""

NANOSECOND: Final = 1
MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

MAX_DURATION: Final = 2**63 - 1
"""Nanoseconds: 2562047h47m16.854775807s, the longest duration in Go."""

_UNITS: Final = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,  # the micro sign
    "\u03bcs": MICROSECOND,  # the Greek letter, which looks the same
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}

DURATION: Final = r"\A(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|\u00b5s|ms|s|m|h))+\Z"
"""The schema of ``timeout`` and ``duration`` in conditions,
and of the time fields of the medik8s operators.
"""

NODE_STARTUP_TIMEOUT: Final = r"\A0|[0-9](?:\.[0-9]+)?(?:ns|us|\u00b5s|ms|s|m|h)\Z"
"""The schema of the MachineHealthCheck's ``nodeStartupTimeout``: ``^0|(…)+$``.

The bar binds weaker than the anchors. Any text passes that starts with 0 or *ends* in a duration,
so matching the last digit of that duration suffices.
"""

HEALTHY_DELAY: Final = r"\A-?(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|\u00b5s|ms|s|m|h))+\Z"
"""The schema of the NodeHealthCheck's ``healthyDelay``: a negative value means forever."""

_ELEMENT: Final = r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
_GO_DURATION: Final = rf"([+-]?)(0|(?:{_ELEMENT})+)"


def admits(pattern: str, text: str) -> bool:
    """Whether a schema with this pattern accepts the text: a match anywhere,
    unless the pattern is anchored.
    """
    return re.search(pattern, text) is not None


def parse_duration(value: object, schema: str | None = None) -> int:
    """Parse a duration such as ``5m`` or ``1h30m`` as Go's ``time.ParseDuration`` does.

    Args:
        value: the JSON value.
        schema: a pattern that the text must match as well.

    Returns:
        Nanoseconds.

    Raises:
        ValueError: the value is not a valid duration; the message has the problem and the remedy.
    """
    if not isinstance(value, str):
        raise ValueError(
            f'{show(value)} is not a duration: write a string with a unit, such as "300s" or "5m"'
        )
    parsed = re.fullmatch(_GO_DURATION, value) if len(value) <= LONGEST else None
    if not parsed or (schema and not admits(schema, value)):
        raise ValueError(
            f"{show(value)} is not a duration: write numbers with a unit (ms, s, m, h), such as "
            "90s or 1h30m"
        )
    sign, elements = parsed.group(1, 2)
    total = sum(
        _nanoseconds(whole, fraction, _UNITS[unit])
        for whole, fraction, unit in re.findall(_ELEMENT, elements)
    )
    if total > (MAX_DURATION + 1 if sign == "-" else MAX_DURATION):
        raise ValueError(
            f"{show(value)} is longer than a duration can be, which is about 292 years (2562047h)"
        )
    return -total if sign == "-" else total


def _nanoseconds(whole: str, fraction: str, unit: int) -> int:
    """Return the length of one element.

    Go adds the fraction as a truncated float, and reads 63 bits of it.
    """
    part, scale = 0, 1.0
    for digit in fraction:
        longer = part * 10 + int(digit)
        if part > MAX_DURATION // 10 or longer > MAX_DURATION + 1:
            break
        part, scale = longer, scale * 10
    return int(whole or "0") * unit + int(part * (unit / scale))


def format_duration(nanoseconds: int) -> str:
    """Format a duration: ``5m``, ``1h30m``, ``1.5s``, ``0s``. ``parse_duration`` reads it back."""
    if not nanoseconds:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    hours, rest = divmod(abs(nanoseconds), HOUR)
    minutes, rest = divmod(rest, MINUTE)
    text = sign + (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
    if not rest:
        return text
    if text != sign or rest >= SECOND:
        return text + _decimal(rest, SECOND) + "s"
    unit = next(unit for unit in ("ms", "\u00b5s", "ns") if rest >= _UNITS[unit])
    return text + _decimal(rest, _UNITS[unit]) + unit


def _decimal(number: int, unit: int) -> str:
    """Format ``number / unit`` without trailing zeros; the unit is a power of ten."""
    whole, below = divmod(number, unit)
    return f"{whole}.{below:0{len(str(unit)) - 1}}".rstrip("0") if below else str(whole)
