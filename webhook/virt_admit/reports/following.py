"""What ``--follow`` reports: changes, each a line of text and a JSON object,
and how following ended.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime

from virt_admit.model.sanitize import line
from virt_admit.reports.values import as_data


@dataclass(frozen=True, slots=True)
class FollowChange:
    """One change: a line of text (empty: none) and a value whose fields are the keys of its JSON
    object.
    """

    type: str
    text: str
    value: object


@dataclass(frozen=True, slots=True)
class Look:
    """What one judgement of the cluster found."""

    changes: tuple[FollowChange, ...]
    """What changed since the look before, or everything at the first one."""
    screen: tuple[str, ...]
    """The lines of the whole state."""
    progress: Hashable
    """A value that changes when something moved."""
    moved: datetime | None
    """When something last moved according to the objects; None: they do not tell."""
    done: str
    """Why nothing is left to follow; empty: something is."""
    stuck: bool
    """Whether it is certain that it does not end by itself."""
    state: object
    """The value that the last JSON object carries."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing has moved for some time."""

    last_progress: str | None
    """RFC 3339. Null: not known."""
    minutes: int

    def change(self) -> FollowChange:
        return FollowChange("progress", f"no progress for {self.minutes} min", self)


class Result(enum.StrEnum):
    """How following ended."""

    DONE = "done"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class End:
    """How following ended."""

    result: Result
    exit: int
    reason: str


def text_line(time: str | None, text: str) -> str:
    """Return a change as one line that is safe to print."""
    return line(f"{time or 'unknown time'} {text}")


def json_line(time: str | None, type_: str, *values: object) -> str:
    """Return one JSON object in one line.

    The keys of later values come after those of earlier ones.
    """
    data = {"version": 1, "time": time, "type": type_}
    for value in values:
        data |= as_data(value) if value is not None else {}
    return json.dumps(data)
