"""The clock of the API server, estimated from the ``Date`` headers of its responses."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class ServerClock:
    """The API server's time, which it verifies certificates against: local time plus an offset."""

    def __init__(
        self,
        local: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local = local
        self._monotonic = monotonic
        self._offsets: deque[float] = deque(maxlen=5)
        self._base: float | None = None

    @property
    def offset(self) -> float:
        """Return how many seconds the API server is ahead.

        Below 2 s it counts as 0: the header has whole seconds.
        """
        if not self._offsets:
            return 0.0
        median = statistics.median(self._offsets)
        return median if abs(median) >= 2 else 0.0

    def now(self) -> datetime:
        return self._local() + timedelta(seconds=self.offset)

    def observe_date(self, date: datetime | None) -> None:
        """Record the ``Date`` of a response that has just arrived;
        None (no API server) changes nothing.

        The median of several responses tolerates a delayed one. A step of the local clock, measured
        against the monotonic clock, makes the earlier responses useless, so they are forgotten.
        """
        if date is None:
            return
        local = self._local()
        base = local.timestamp() - self._monotonic()
        if self._base is not None and abs(base - self._base) >= 2:
            self._offsets.clear()
        self._base = base
        self._offsets.append((date - local).total_seconds())
