"""The loop that keeps certificates alive: look, publish, show, do the step that is due.

Every worker of every replica runs the same loop; who loses a race reads again. Nothing here can end it: errors are
counted and logged, and what was shown stays shown.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from virt_admit_certs.issue import (
    Certificate,
    Pair,
    State,
    bundle_of,
    certs_pem,
    good_for,
    issued_by,
    key_pem,
    ordered,
    parse,
    parse_bundle,
    render,
    sha256,
    valid,
)
from virt_admit_certs.plan import (
    Seen,
    Settings,
    SettingsError,
    Step,
    cert_fault,
    plan,
    serving_fault,
    show_duration,
    upcoming,
)
from virt_admit_certs.steps import perform, timestamp
from virt_admit_certs.store import ApiError, Configuration, Configurations, Loaded, Store

log = logging.getLogger(__name__)

Count = Callable[[str, str], None]
"""Told of every event, ``(what, label)``: ``step`` and its name; ``error`` and its reason (those of ApiError, or
storage, certificate, settings, internal); ``conflict``, a lost race, and nothing."""

_REMEMBERED: Final = timedelta(minutes=5)
_READY_ANYWAY: Final = 30.0  # seconds after start
_LOOK_EVERY: Final = 1.0  # seconds between two looks on behalf of connections
_AT_ONCE: Final = 10  # rounds without a pause at most: a save that never succeeds must not spin


class Clock:
    """The API server's time, which is what certificates are verified against: local time and a correction."""

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
        """Seconds that the API server is ahead. Below 2 s it counts as 0: its header has whole seconds."""
        if not self._offsets:
            return 0.0
        median = statistics.median(self._offsets)
        return median if abs(median) >= 2 else 0.0

    def now(self) -> datetime:
        return self._local() + timedelta(seconds=self.offset)

    def hear(self, date: datetime | None) -> None:
        """Take the ``Date`` of an answer that has just come; None (no API server) changes nothing.

        A median forgives one answer that lay around. But after a step of the local clock, which shows against the
        monotonic one, the answers from before it say nothing any more.
        """
        if date is None:
            return
        local = self._local()
        base = local.timestamp() - self._monotonic()
        if self._base is not None and abs(base - self._base) >= 2:
            self._offsets.clear()
        self._base = base
        self._offsets.append((date - local).total_seconds())


@dataclass(frozen=True, slots=True)
class Item:
    """One condition of readiness."""

    name: str
    ready: bool
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the loop knows, for metrics and status pages."""

    checked: datetime | None = None
    """The last round that could read the store, by the API server's clock."""
    offset: float = 0.0
    """Seconds that the API server's clock is ahead of ours."""
    injected: Mapping[str, bool] = field(default_factory=dict)
    """By kind of configuration: whether all its entries carry the bundle. Absent configurations are left out."""
    state: State = field(default_factory=State)
    shown: Certificate | None = None

    @property
    def certificates(self) -> dict[str, Certificate]:
        """What expires: ``serving`` (the one shown), ``signer``, and ``bundle_oldest``, the first to expire."""
        found = {"serving": self.shown, "signer": self.state.signer.cert if self.state.signer else None}
        found["bundle_oldest"] = min(self.state.bundle, key=lambda cert: cert.not_valid_after_utc, default=None)
        return {name: cert for name, cert in found.items() if cert is not None}


class Rotator:
    """Keeps one store's certificates alive, and shows them.

    ``round`` looks once and does at most one step; ``settle`` makes rounds until nothing is due; ``start`` makes them
    for ever in a thread of its own. Of a store that somebody else fills, only looking and showing remain.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        show: Callable[[bytes, bytes], None],
        follow: Callable[[], Settings] | None = None,
        configurations: Configurations | None = None,
        count: Count = lambda _what, _label: None,
        clock: Clock | None = None,
        identity: str = "",
    ) -> None:
        """``show`` gets the chain and the key as PEM and raises if it cannot show them.

        ``follow`` gives the settings of each round; while it raises SettingsError the last ones stay in force.
        ``configurations`` get the bundle; None: nobody needs it.
        """
        self.settings = settings
        self.clock = clock or Clock()
        self._store = store
        self._show_pem = show
        self._follow = follow or (lambda: settings)
        self._configurations = configurations
        self._count = count
        self._identity = identity or f"{socket.gethostname()}/{os.getpid()}"

        self._lock = threading.RLock()  # a round, and a look on behalf of a connection, exclude each other
        self._version: str | None = None
        self._looked = 0.0
        self._good: tuple[State, datetime] | None = None
        self._damaged_since: datetime | None = None
        self._shown: tuple[Certificate, ...] = ()
        self._trusted_once = False
        self._facts = Facts()
        self._logged: dict[str, float] = {}

        self._started = time.monotonic()
        self._wake = threading.Event()
        self._woken = -math.inf
        self._settled = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # The thread

    def start(self, patience: float = 0.0) -> None:
        """Begin to make rounds, in the process that serves: a thread does not survive a fork.

        Waits until nothing is due any more, ``patience`` seconds at most: an API server may be slow.
        """
        self._thread = threading.Thread(target=self._run, name="certs", daemon=True)
        self._thread.start()
        self._settled.wait(patience)

    def stop(self, timeout: float = 2.0) -> None:
        """End the thread; a round under way may take longer than ``timeout`` seconds and is then left alone."""
        self._stopping.set()
        self._wake.set()
        if self._thread:
            self._thread.join(timeout)

    def wake(self) -> None:
        """Make a round now, though not more than one a second: somebody does not believe what is shown, say."""
        if time.monotonic() - self._woken >= _LOOK_EVERY:
            self._woken = time.monotonic()
            self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.settle()
            self._settled.set()
            interval = self.settings.check_interval.total_seconds()
            self._wake.wait(interval * random.uniform(0.8, 1.2))  # noqa: S311 - spreads the load
            self._wake.clear()

    def settle(self) -> None:
        """Make rounds until nothing is due. Never raises."""
        for _ in range(_AT_ONCE):
            if not self.round():
                return
            self._stopping.wait(random.uniform(0, 0.05))  # noqa: S311 - who raced once should not race again

    def round(self) -> bool:
        """Look, publish, show, do the step that is due. True: something changed, look again at once. Never raises."""
        with self._lock:
            try:
                self._read_settings()
                return self._advance(*self._look())
            except Exception as error:  # the loop must outlive everything
                self._failed(error)
                return False

    def refresh(self) -> None:
        """Show what has been stored meanwhile, if that can be told without asking anybody. Never raises.

        For each new connection: at most once a second, and then in microseconds unless there is something to show.
        """
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        try:
            if self._store.stale(self._version):
                if self._configurations is not None:
                    self.wake()  # who publishes asks the API server, and does so before showing
                elif self._lock.acquire(blocking=False):
                    try:
                        self._look()
                    finally:
                        self._lock.release()
                else:
                    return  # a round is under way and may make keys: connections do not wait for it, but look again
        except Exception as error:
            self._failed(error)
        self._looked = time.monotonic()

    # One round

    def _read_settings(self) -> None:
        try:
            wanted = self._follow()
        except SettingsError as error:
            self._failed(error, "settings")
            return
        if wanted != self.settings:
            self.settings = wanted
            told = {name.replace("-", "_"): show_duration(value) for name, value in wanted.schedule.items()}
            log.info("certificate schedule", extra=told)

    def _look(self) -> tuple[Loaded, State, Seen, datetime]:
        loaded = self._store.load()
        self.clock.hear(loaded.date)
        now = self.clock.now()
        self._version = loaded.version
        self._looked = time.monotonic()
        state = parse(loaded.data, loaded.notes)
        self._facts = replace(self._facts, checked=now, offset=self.clock.offset, state=state)
        if abs(self.clock.offset) > 60:
            self._log("clock", "local clock differs from the API server's", offset=round(self.clock.offset))
        if self._store.external:
            seen = self._publish_external(state, now)
            self._show_external(state, now)
        else:
            seen = self._see(state, now)
            self._show_own(state, seen, now)
        return loaded, state, seen, now

    def _see(self, state: State, now: datetime) -> Seen:
        """Publish the bundle if the signer can be used, or else find out what is left to build upon."""
        if state.signer and valid(state.signer.cert, now):
            self._damaged_since = None
            return Seen(injected=self._publish(lambda _found: certs_pem(state.bundle)))
        since = self._damaged_since = self._damaged_since or now
        remembered = None
        if self._good and abs(since - self._good[1]) <= _REMEMBERED:  # or a rotation may have been slept through
            remembered = self._good[0]
        return Seen(injected=False, remembered=remembered, published=self._published())

    def _publish_external(self, state: State, now: datetime) -> Seen:
        """Publish somebody else's CA beside the ones before it, which stay until they expire."""
        if not state.bundle:
            return Seen(injected=self._configurations is None)
        return Seen(injected=self._publish(lambda found: certs_pem(bundle_of(now, state.bundle, _authorities(found)))))

    def _publish(self, bundle_beside: Callable[[Sequence[Configuration]], bytes]) -> bool:
        """Give every configuration that exists its bundle; whether all have it now.

        Errors stay here: without the right to patch, serving certs must be renewed all the same.
        """
        if self._configurations is None:
            return True
        try:
            configurations = self._configurations.read()
            bundle = bundle_beside(configurations)
            carried = {}
            for found in configurations:
                after = found
                if not found.carries(bundle):
                    after = self._configurations.inject(found, bundle)
                    log.info("bundle published", extra={"kind": found.kind, "carried": after.carries(bundle)})
                carried[found.kind] = after.carries(bundle)
        except Exception as error:
            self._failed(error)
            self._facts = replace(self._facts, injected=dict.fromkeys(self._facts.injected, False))
            return False
        self._facts = replace(self._facts, injected=carried)
        trusted = all(carried.values())
        self._trusted_once = self._trusted_once or trusted
        return trusted

    def _published(self) -> tuple[Certificate, ...]:
        if self._configurations is None:
            return ()
        try:
            return _authorities(self._configurations.read())
        except Exception as error:
            self._failed(error)
            return ()

    def _show_own(self, state: State, seen: Seen, now: datetime) -> None:
        if state.serving is None or state.signer is None or serving_fault(state, now, self.settings):
            return
        self._good = (state, now)
        shown = self._shown[0] if self._shown else None
        if (
            shown
            and valid(shown, now)
            and not issued_by(shown, state.signer.cert)
            and not (seen.injected or state.chain)
        ):
            return  # API servers trust what is shown, and perhaps not yet the new signer
        self._show(state.serving, state.chain)

    def _show_external(self, state: State, now: datetime) -> None:
        """Show what is good; while nothing good is shown, rather show what is bad: the client's error names why."""
        fault = _external_fault(state, now, self.settings.names)
        if fault:
            self._failed(_UnusableError(fault))
        shown = self._shown[0] if self._shown else None
        if state.serving and (not fault or shown is None or not valid(shown, now)):
            self._show(state.serving, state.chain)

    def _show(self, serving: Pair, rest: tuple[Certificate, ...]) -> None:
        chain = (serving.cert, *rest)
        if chain == self._shown:
            return
        try:
            self._show_pem(certs_pem(chain), key_pem(serving.key))
        except Exception as error:
            self._failed(error, "certificate")
            return
        self._shown = chain
        self._facts = replace(self._facts, shown=chain[0])
        log.info(
            "certificate shown",
            extra={"sha256": sha256(chain[0])[:16], "not_after": timestamp(chain[0].not_valid_after_utc)},
        )

    def _advance(self, loaded: Loaded, state: State, seen: Seen, now: datetime) -> bool:
        if self._store.external:
            return False
        step = plan(state, seen, now, self.settings)
        if step is None:
            return False
        after = perform(step, state, seen, now, self.settings)
        notes = {**after.notes, "rotated-by": self._identity}
        if not self._store.save(render(after), notes, loaded.version):
            self._count("conflict", "")
            return True
        self._count("step", step.name)
        log.info("certificate step", extra=_told(step, after, upcoming(after, Seen(), now, self.settings)))
        return True

    # What others see

    @property
    def facts(self) -> Facts:
        """What the last round found."""
        return self._facts

    def readiness(self) -> tuple[Item, ...]:
        """The conditions under which calls should come here; ready if each is."""
        now = self.clock.now()
        shown = self._shown[0] if self._shown else None
        if shown is None:
            certificate = Item("certificate", False, "no certificate yet")
        else:
            fault = cert_fault("the serving cert", shown, now)
            text = fault or f"valid until {timestamp(shown.not_valid_after_utc)}"
            certificate = Item("certificate", not fault, text)
        if self._configurations is None or self._trusted_once:
            bundle = Item("bundle", True, "published")
        else:
            waited = time.monotonic() - self._started >= _READY_ANYWAY
            bundle = Item("bundle", waited, "not published yet" + ", waited long enough" * waited)
        return certificate, bundle

    def _failed(self, error: Exception, reason: str = "") -> None:
        reason = reason or _reason(error)
        self._count("error", reason)
        self._log(reason, "certificate round failed", error=error, reason=reason)

    def _log(self, kind: str, message: str, *, error: Exception | None = None, **data: object) -> None:
        """Warn, once per kind and minute."""
        now = time.monotonic()
        if now - self._logged.get(kind, -math.inf) < 60:
            return
        self._logged[kind] = now
        if error is not None:
            data["error"] = str(error) or type(error).__name__
        log.warning(message, extra=data, exc_info=error if kind == "internal" else None)


class _UnusableError(Exception):
    """Somebody else's certificate cannot be used."""


def _reason(error: Exception) -> str:
    """The label under which an error is counted."""
    if isinstance(error, ApiError):
        return error.reason
    if isinstance(error, _UnusableError):
        return "certificate"
    return "storage" if isinstance(error, OSError) else "internal"


def _external_fault(state: State, now: datetime, names: Sequence[str]) -> str:
    """Why somebody else's serving cert must not be shown, or an empty text."""
    if state.serving is None:
        return "; ".join(fault for fault in state.faults if fault.startswith("tls."))
    missing = [name for name in names if not good_for(state.serving.cert, name)]
    if missing:
        return f"the serving cert is not for {', '.join(missing)}"
    return cert_fault("the serving cert", state.serving.cert, now)


def _authorities(configurations: Iterable[Configuration]) -> tuple[Certificate, ...]:
    """The CA certificates that configurations carry, strictly read."""
    bundles = {entry.bundle for configuration in configurations for entry in configuration.entries}
    return ordered(cert for bundle in bundles for cert in parse_bundle(bundle, []))


def _told(step: Step, after: State, following: tuple[Step, datetime] | None) -> dict[str, object]:
    """A step as a line of the log: fingerprints and times, never PEM."""
    told: dict[str, object] = {
        "step": step.name,
        "reason": step.reason,
        "generation": after.notes["generation"],
    }
    if after.signer:
        told["signer"] = sha256(after.signer.cert)[:16]
    if after.serving:
        told["serving"] = sha256(after.serving.cert)[:16]
        told["not_after"] = timestamp(after.serving.cert.not_valid_after_utc)
    if following:
        told["next_step"] = following[0].name
        told["next_at"] = timestamp(following[1])
    return told
