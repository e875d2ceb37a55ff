"""The results of checks of an installation."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass


class Status(enum.StrEnum):
    """The result of one check."""

    OK = "ok"
    NOTE = "note"
    """Useful to know, no problem."""
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CheckObservation:
    """One result of a check."""

    topic: str
    status: Status
    text: str
    remedy: str = ""
    """What to do about a problem."""


Outcome = tuple[Status, str] | tuple[Status, str, str]
"""Status, text and remedy of an observation."""
CheckResult = Iterator[Outcome]
