"""The loop of ``--follow``: judge a live cluster again whenever it changed, show what changed,
and end.

To follow something, pass ``follow`` a ``Followed``: it names the kinds that it reads and turns the
cluster at one moment into a ``Look``, which has the screen, the changes since the look before (a
line and a JSON object each), and whether something moved, is done or cannot end. Everything else is
here: informers, the API server's clock, an API server that restarts, rights, a terminal that is
redrawn, lines for a pipe, JSON lines, ``--timeout`` and ``--stalled``, exit codes. Nothing is
written to the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from virt_admit.cli.live_display import Display
from virt_admit.cli.options import ClusterOptions
from virt_admit.cli.output import failure
from virt_admit.kube.cache import KindStore, StoreState
from virt_admit.kube.client import ApiClient
from virt_admit.kube.field_filter import FieldSet
from virt_admit.kube.indexed_store import IndexedStore, KeysOf
from virt_admit.kube.informers import InformerTimeouts, LiveCluster
from virt_admit.kube.moments import Moments, WholeMoments
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.units import MICROSECOND, format_duration
from virt_admit.reports.following import End, Idle, Look, Result
from virt_admit.rules import Rules
from virt_admit.settings import SettingError

TIMEOUTS: Final = InformerTimeouts(version=10.0)
"""The API server is asked for its version so often, which shows its time, and that it answers."""
POLL: Final = 0.2
"""Seconds between two looks at the counters of changes."""
PAUSE: Final = 0.5
"""Seconds between two judgements, at most, if there is something new: the first one often costs
more than all others.
"""
REFRESH: Final = 5.0
"""Seconds after which an unchanged cluster is judged again, because waits end and ages grow."""
LOST_AFTER: Final = 60.0
"""Seconds without an answer of the API server after which following ends."""
STALE_AFTER: Final = 15.0
"""Seconds without an answer after which the screen says that it is not current."""
IDLE_MINUTES: Final = (10, 20, 40, 80, 160, 320, 640, 1280)
"""Minutes without progress that are reported."""


class Followed(Protocol):
    """What is followed."""

    needs: tuple[Kind, ...]
    """Kinds without which nothing can be said: if one may not be listed,
    following ends with exit code 2.
    """

    def look(self, cluster: Cluster) -> Look:
        """Judge the cluster at one moment.

        Raises:
            LookupError: what should be followed does not exist.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowLimits:
    """When following ends although nothing is done. None: never."""

    timeout: timedelta | None = None
    """After this time."""
    stalled: timedelta | None = None
    """After this time without progress, if it is certain that it does not end by itself."""


NO_INDEX: Final[Mapping[Kind, KeysOf]] = {}


def live_cluster(
    source: ClusterOptions,
    reads: Reads,
    indexes: Mapping[Kind, KeysOf] = NO_INDEX,
    timeouts: InformerTimeouts = TIMEOUTS,
) -> LiveCluster:
    """Return the cluster that the options name, with these fields.

    Its informers are not started yet.

    Kinds with an index get an ``IndexedStore``, for ``ScopedMoments``.

    Raises:
        ClickException: the options and the kubeconfig name no cluster.
    """
    stores = [
        IndexedStore(kind, indexes[kind], FieldSet(paths))
        if kind in indexes
        else KindStore(kind, fields=FieldSet(paths), packed=True)
        for kind, paths in reads.items()
    ]
    try:
        api = ApiClient.connect(source.kubeconfig, source.context, connections=len(stores) + 2)
    except SettingError as error:
        raise failure(error) from None
    return LiveCluster(api, Rules(()), timeouts, stores)


def follow(
    live: LiveCluster,
    subject: Followed,
    display: Display,
    limits: FollowLimits,
    moments: Moments | None = None,
) -> int:
    """Follow a subject until it is done, a limit has passed, or the cluster cannot be read.

    Args:
        live: the informers, not started yet. They are stopped at the end.
        subject: what is followed.
        display: where changes and the screen appear.
        limits: when to end although nothing is done.
        moments: what the subject sees of the cluster; None: everything.

    Returns:
        The exit code: 0 done, 1 a limit has passed, 2 rights are missing or the API server does not
        answer.

    Raises:
        LookupError: what should be followed does not exist.
    """
    live.start()
    try:
        return _Following(live, subject, display, limits, moments or WholeMoments(live)).run()
    finally:
        display.close()
        live.stop()


class _Following:
    """One run of ``follow``."""

    def __init__(
        self,
        live: LiveCluster,
        subject: Followed,
        display: Display,
        limits: FollowLimits,
        moments: Moments,
    ) -> None:
        self._live, self._subject, self._display, self._limits = live, subject, display, limits
        self._moments = moments
        self._began = time.monotonic()
        self._look: Look | None = None
        self._looked = float("-inf")
        self._cost = 0.0
        self._generation = -1
        self._moved = self._began
        """When something last moved, by the clock of this process."""
        self._idle_said = 0

    def run(self) -> int:
        while True:
            end = self._step()
            if end is not None:
                state = self._look.state if self._look is not None else None
                self._display.end(clock.stamp(self._live.now()), end, state)
                return end.exit
            time.sleep(POLL)

    def _step(self) -> End | None:
        """Look at the cluster if it changed. Return how following ends, if it does."""
        refused = self._refused()
        if refused:
            reason = (
                f"not allowed to list {', '.join(refused)}. Ask for the rights get, list and watch"
            )
            return End(Result.UNREADABLE, 2, reason)
        if self._live.silence > LOST_AFTER:
            seconds = int(LOST_AFTER)
            return End(Result.UNREADABLE, 2, f"the API server has not answered for {seconds} s")
        if not self._live.missing and self._is_due():
            self._judge()
        self._display.refresh(self._warning())
        return self._limit()

    def _refused(self) -> list[str]:
        stores = self._live.stores
        return [
            str(kind) for kind in self._subject.needs if stores[kind].state is StoreState.REFUSED
        ]

    def _is_due(self) -> bool:
        """Whether to judge again: something changed, or time has passed.

        A costly judgement is repeated less often.
        """
        waited = time.monotonic() - self._looked
        if waited < min(self._cost, PAUSE):
            return False
        return self._live.generation != self._generation or waited > max(REFRESH, 3 * self._cost)

    def _judge(self) -> None:
        started = time.monotonic()
        # before judging: a change meanwhile is judged next time
        self._generation = self._live.generation
        now = self._live.now()
        moment = self._moments.at(clock.stamp(now))
        look = self._subject.look(moment)
        self._note_progress(look, now)
        for change in look.changes:
            self._display.change(moment.time, change)
        self._display.screen(look.screen)
        self._look, self._looked = look, time.monotonic()
        self._cost = self._looked - started

    def _note_progress(self, look: Look, now: datetime | None) -> None:
        current = time.monotonic()
        if self._look is None:
            if look.moved is not None and now is not None:
                self._moved = current - max((now - look.moved).total_seconds(), 0.0)
                idle = (current - self._moved) / 60
                self._idle_said = sum(minutes <= idle for minutes in IDLE_MINUTES[1:])
        elif look.progress != self._look.progress:
            self._moved, self._idle_said = current, 0
        if (
            self._idle_said < len(IDLE_MINUTES)
            and current - self._moved >= IDLE_MINUTES[self._idle_said] * 60
        ):
            minutes = int((current - self._moved) // 60)
            began = now - timedelta(seconds=current - self._moved) if now is not None else None
            self._display.change(clock.stamp(now), Idle(clock.stamp(began), minutes).change())
            self._idle_said += 1

    def _warning(self) -> str:
        if self._live.missing and self._look is None:
            return f"reading {', '.join(self._live.missing[:3])}"
        if self._live.silence > STALE_AFTER or not self._live.current:
            silent = int(self._live.silence)
            answer = f"last answer {silent} s ago"
            return f"The API server sends no changes ({answer}). This is the last known state."
        return ""

    def _limit(self) -> End | None:
        look, limits, current = self._look, self._limits, time.monotonic()
        if look is not None and look.done:
            return End(Result.DONE, 0, look.done)
        idle = timedelta(seconds=current - max(self._moved, self._began))
        if (
            look is not None
            and look.stuck
            and limits.stalled is not None
            and idle >= limits.stalled
        ):
            still = f"nothing has moved for {_words(limits.stalled)}"
            return End(Result.STALLED, 1, f"{still}, and it does not end by itself")
        if (
            limits.timeout is not None
            and timedelta(seconds=current - self._began) >= limits.timeout
        ):
            return End(Result.TIMEOUT, 1, f"the time-out of {_words(limits.timeout)} has passed")
        return None


def _words(length: timedelta) -> str:
    return format_duration(int(length / timedelta(microseconds=1)) * MICROSECOND)
