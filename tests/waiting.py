"""Waiting for what comes true by and by, on a machine of any speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONGEST_PAUSE = 0.25
"""Seconds between two looks. The first pauses are shorter."""
PATIENCE = 60.0
"""Seconds. What is awaited comes within a fraction of it,
unless the machine has other things to do.
"""


def eventually(what: Callable[[], T], patience: float = PATIENCE) -> T:
    """What is given as soon as it is true.

    Raises AssertionError if it is not within so many seconds.
    """
    began = time.monotonic()
    while not (found := what()):
        waited = time.monotonic() - began
        assert waited < patience, f"not true within {patience:g} s"
        # Some ask by kubectl, which without a pause takes a whole processor from what is awaited.
        time.sleep(min(0.01 + waited / 10, LONGEST_PAUSE))
    return found
