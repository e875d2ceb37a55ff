"""The classes of color of a page."""

from __future__ import annotations

from typing import Final

BAD: Final = "bad"
SEVERE: Final = "severe"
UNKNOWN: Final = "unknown"
NOTICE: Final = "notice"
GOOD: Final = "good"
LEVELS: Final = (BAD, SEVERE, UNKNOWN, NOTICE, GOOD)
"""The classes of color, worst first. A word always stands next to the color."""
