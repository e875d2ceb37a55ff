"""Values that Kubernetes writes as text: durations, quantities, and limits that are a count or a percentage.

A duration or a limit is checked twice: by the pattern of the schema, and by the Go code that decodes it. A value
must pass both, and each check accepts values that the other rejects. The patterns therefore have names here, and
each parser follows the Go code.

Python and Go differ in ways that matter throughout this module. ``$`` in Go is the end of the text, never the
position before a final newline. Digits are ``[0-9]``, while ``int()`` accepts all scripts, blanks and underscores.
A boolean is an ``int`` in Python but not an integer in JSON. No pattern here backtracks more than once over a text,
because texts are untrusted and may be megabytes long.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from fractions import Fraction
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
"""Characters of a duration or a quantity. Go sets no limit, but parsing longer texts only costs time."""


# --- durations ---------------------------------------------------------------------------------------------------

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

DURATION: Final = re.compile(r"\A(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|\u00b5s|ms|s|m|h))+\Z")
"""The schema of ``timeout`` and ``duration`` in conditions, and of the time fields of the medik8s operators."""

NODE_STARTUP_TIMEOUT: Final = re.compile(r"\A0|[0-9](?:\.[0-9]+)?(?:ns|us|\u00b5s|ms|s|m|h)\Z")
"""The schema of the MachineHealthCheck's ``nodeStartupTimeout``: ``^0|(…)+$``.

The bar binds weaker than the anchors. Any text passes that starts with 0 or *ends* in a duration, so matching the
last digit of that duration suffices.
"""

HEALTHY_DELAY: Final = re.compile(r"\A-?(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|\u00b5s|ms|s|m|h))+\Z")
"""The schema of the NodeHealthCheck's ``healthyDelay``: a negative value means forever."""

_ELEMENT: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_GO_DURATION: Final = re.compile(rf"([+-]?)(0|(?:{_ELEMENT.pattern})+)")


def admits(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a schema with this pattern accepts the text: a match anywhere, unless the pattern is anchored."""
    return pattern.search(text) is not None


def parse_duration(value: object, schema: re.Pattern[str] | None = None) -> int:
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
        raise ValueError(f'{show(value)} is not a duration: write a string with a unit, such as "300s" or "5m"')
    parsed = _GO_DURATION.fullmatch(value) if len(value) <= LONGEST else None
    if not parsed or (schema and not admits(schema, value)):
        raise ValueError(
            f"{show(value)} is not a duration: write numbers with a unit (ms, s, m, h), such as 90s or 1h30m"
        )
    sign, elements = parsed.group(1, 2)
    total = sum(_nanoseconds(whole, fraction, _UNITS[unit]) for whole, fraction, unit in _ELEMENT.findall(elements))
    if total > (MAX_DURATION + 1 if sign == "-" else MAX_DURATION):
        raise ValueError(f"{show(value)} is longer than a duration can be, which is about 292 years (2562047h)")
    return -total if sign == "-" else total


def _nanoseconds(whole: str, fraction: str, unit: int) -> int:
    """Return the length of one element. Go adds the fraction as a truncated float, and reads 63 bits of it."""
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


# --- quantities --------------------------------------------------------------------------------------------------

_SUFFIXES: Final = {
    "": Fraction(1),
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", 1)},
}

_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?")

_LARGEST_EXPONENT: Final = 1_000
"""Larger exponents are read as this one, which exceeds anything that a quantity is compared with."""


def parse_quantity(value: object, *, integers: bool = False) -> Fraction:
    """Return the exact number that a quantity such as ``64Mi``, ``1e3`` or ``100m`` (0.1) means.

    Args:
        value: the JSON value.
        integers: whether to accept JSON integers as well, for fields that the schema declares as int-or-string.

    Raises:
        ValueError: the value is not a valid quantity; the message has the problem and the remedy.
    """
    if integers and isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if not isinstance(value, str):
        raise ValueError(f'{show(value)} is not a quantity: write a string such as "64Mi" or "1G"')
    parsed = _QUANTITY.fullmatch(value) if len(value) <= LONGEST else None
    if not parsed:
        raise ValueError(
            f"{show(value)} is not a quantity: write a number, and after it Ki Mi Gi Ti, k M G T, or nothing"
        )
    number, suffix, exponent = parsed.groups()
    if exponent:
        power = max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, float(exponent)))
        return Fraction(number) * Fraction(10) ** int(power)
    return Fraction(number) * _SUFFIXES[suffix or ""]


# --- limits: a count or a percentage -----------------------------------------------------------------------------

INT_OR_PERCENT: Final = re.compile(r"\A(?:(?:100|[0-9]{1,2})%|[0-9]+)\Z")
"""The schema of ``maxUnhealthy`` and ``minHealthy`` (not in Cluster API). It applies to strings only."""

MAX_INT32: Final = 2**31 - 1
"""The largest int-or-string integer. A larger one makes the whole list of objects impossible to decode."""

_PERCENT: Final = re.compile(r"[0-9]+%")
_DIGITS: Final = re.compile(r"[0-9]+")
_NEGATIVE: Final = re.compile(r"-[0-9]+%?")


class LimitKind(enum.Enum):
    """The controller that reads the limit: the same text means different numbers to different controllers.

    Sources: openshift/machine-api-operator, kubernetes-sigs/cluster-api:
    …machinehealthcheck_controller.go#getMaxUnhealthy; medik8s/node-healthcheck-operator:
    internal/controller/nodehealthcheck_controller.go#getMinHealthy.
    """

    MACHINE_API = "maxUnhealthy of machine.openshift.io: a percentage is rounded down; digits in a string are a count"
    CLUSTER_API = "maxUnhealthy of cluster.x-k8s.io: a percentage is rounded down"
    NODE_MAX_UNHEALTHY = "maxUnhealthy of remediation.medik8s.io: a percentage is rounded up"
    NODE_MIN_HEALTHY = "minHealthy of remediation.medik8s.io: a percentage is rounded up"


class Fault(enum.Enum):
    """Why a value is not a valid limit."""

    TYPE = "neither an integer nor a string"
    FORM = "a string that is not a percentage"
    DIGITS = "an integer in quotes, which this controller cannot read"
    NEGATIVE = "below zero"
    TOO_LARGE = "beyond 32 bits"
    ABOVE_100 = "more than 100 percent"


class LimitError(ValueError):
    """A value that is not a valid limit."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    """A limit: ``number`` machines or nodes, or ``number`` percent of those that the selector matches."""

    number: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


def parse_int_or_percent(value: object, limit: LimitKind) -> IntOrPercent:
    """Parse a limit as its controller does: ``3``, ``"40%"`` and, only in the Machine API, ``"3"``.

    Raises:
        LimitError: the schema or the controller rejects the value, or accepts it and then never remediates.
    """
    if isinstance(value, str):
        return _limit_in_text(value, limit)
    if not isinstance(value, int) or isinstance(value, bool):
        raise LimitError(Fault.TYPE, f'{show(value)} is neither an integer nor a percentage such as "40%"')
    if value < 0:
        raise LimitError(Fault.NEGATIVE, f"{value} is below zero")
    if value > MAX_INT32:
        raise LimitError(Fault.TOO_LARGE, f"{show(value)} is more than {MAX_INT32}")
    return IntOrPercent(value)


def _limit_in_text(text: str, limit: LimitKind) -> IntOrPercent:
    shown = show(text)
    if _NEGATIVE.fullmatch(text):
        raise LimitError(Fault.NEGATIVE, f"{shown} is below zero")
    digits = text.removesuffix("%").lstrip("0") or "0"
    if _PERCENT.fullmatch(text):
        if len(digits) > 3 or int(digits) > 100:
            raise LimitError(Fault.ABOVE_100, f"{shown} is more than 100 percent")
        if limit is not LimitKind.CLUSTER_API and not admits(INT_OR_PERCENT, text):
            raise LimitError(Fault.FORM, f"{shown} has too many digits: write '{digits}%'")
        return IntOrPercent(int(digits), percent=True)
    if not _DIGITS.fullmatch(text):
        raise LimitError(Fault.FORM, f'{shown} is neither an integer nor a percentage such as "40%"')
    if len(digits) > 10 or int(digits) > MAX_INT32:
        raise LimitError(Fault.TOO_LARGE, f"{shown} is more than {MAX_INT32}")
    if limit is not LimitKind.MACHINE_API:
        raise LimitError(Fault.DIGITS, f"{shown} is a string: write {digits} without quotes")
    return IntOrPercent(int(digits))


def allowed_unhealthy(value: IntOrPercent, total: int, limit: LimitKind) -> int:
    """Return how many of ``total`` machines or nodes may be unhealthy while their controller still remediates.

    0 means that the controller never remediates. This includes the case in which the NodeHealthCheck controller stops
    with an error because ``maxUnhealthy`` exceeds the number of nodes.
    """
    share = float(value.number) * float(total) / 100 if value.percent else float(value.number)
    match limit:
        case LimitKind.MACHINE_API | LimitKind.CLUSTER_API:
            return math.floor(share)
        case LimitKind.NODE_MAX_UNHEALTHY:
            return math.ceil(share) if share <= total else 0
        case LimitKind.NODE_MIN_HEALTHY:
            return max(0, total - math.ceil(share))
