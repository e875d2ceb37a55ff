"""What a piece of work costs this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def resident(field: str = "VmRSS") -> int:
    """MiB of this process, now (``VmRSS``) or at its peak (``VmHWM``)."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field)]
    return int(line.split()[1]) >> 10


@dataclass
class Work:
    """Seconds of CPU, and the peak of memory in MiB above what was in use before."""

    seconds: float = 0.0
    mib: int = 0


@contextmanager
def measured() -> Iterator[Work]:
    """Measure the block; its ``Work`` is filled in at the end."""
    work, before = Work(), resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    start = time.process_time()
    yield work
    work.seconds, work.mib = time.process_time() - start, resident("VmHWM") - before
