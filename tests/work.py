"""What a piece of work costs a process, on a machine of any speed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REFERENCE: Final = 0.022
"""Seconds of CPU that the calibration takes on the reference machine: one core of an AMD EPYC cloud
server of 2025 with nothing else to do, under Python 3.11. Bounds of CPU time in tests are for this
machine.
"""
_SAMPLE: Final = json.dumps(
    [{"name": f"n{number}", "values": [number, "x", None, 1.5]} for number in range(100)]
)


def slowness() -> float:
    """Return how many times as much CPU as on the reference machine a fixed calibration takes now;
    1 at least.

    A slow processor counts. So do other processes, because they share its caches and its clock.
    """
    start = time.process_time()
    for _ in range(120):
        items = json.loads(_SAMPLE)
        sum(len(item["values"]) for item in items if item["name"] and isinstance(item, dict))
        json.dumps(items)
    return max(1.0, (time.process_time() - start) / REFERENCE)


def resident(field: str = "VmRSS") -> int:
    """MiB of this process, now (``VmRSS``) or at its peak (``VmHWM``)."""
    (line,) = [
        each
        for each in Path("/proc/self/status").read_text().splitlines()
        if each.startswith(field)
    ]
    return int(line.split()[1]) >> 10


@dataclass
class Work:
    """Seconds of CPU on the reference machine,
    and the peak of memory in MiB above what was in use before.
    """

    seconds: float = 0.0
    mib: int = 0


@contextmanager
def measured() -> Iterator[Work]:
    """Measure the block; its ``Work`` is filled in at the end.

    The calibration runs before and after the block.
    """
    work, slow_before, before = Work(), slowness(), resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    start = time.process_time()
    yield work
    seconds, work.mib = time.process_time() - start, resident("VmHWM") - before
    work.seconds = seconds / ((slow_before + slowness()) / 2)
