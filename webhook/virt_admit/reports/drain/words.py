"""How long a drain lasts, in words."""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.upgrade.durations import Range

_IN_SECONDS: Final = 120
_IN_MINUTES: Final = 120 * 60


def range_words(length: Range) -> str:
    """Format a range for people: ``6 to 87 s``, ``20 to 90 min``, ``1 h 05 to 3 h 52``."""
    if length.high < _IN_SECONDS:
        return f"{length.low} to {length.high} s" if length.low < length.high else f"{length.high} s"
    first, last = length.low // 60, -(-length.high // 60)
    return f"{first} to {last} min" if length.high < _IN_MINUTES else f"{_hours(first)} to {_hours(last)}"


def _hours(minutes: int) -> str:
    return f"{minutes // 60} h {minutes % 60:02}"
