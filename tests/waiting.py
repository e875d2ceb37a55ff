"""Waiting for what comes true by and by, on a machine of any speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds. What is awaited comes within a fraction of it, unless the machine has other things to do."""


def eventually(what: Callable[[], T], patience: float = PATIENCE) -> T:
    """What is given as soon as it is true. Raises AssertionError if it is not within so many seconds."""
    deadline = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < deadline, f"not true within {patience:g} s"
        time.sleep(0.01)
    return found
