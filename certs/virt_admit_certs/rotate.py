"""The reconcile loop that keeps certificates alive, in a thread of its own.

Every worker of every replica runs the same loop; the loser of a race reads again. No error ends it:
errors are counted and logged, and the listener keeps its certificate.
"""

from __future__ import annotations

import math
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from virt_admit_certs.bundle_publisher import BundlePublisher
from virt_admit_certs.certificate_presenter import CertificatePresenter
from virt_admit_certs.reconciler import Reconciler
from virt_admit_certs.rotation_events import OnEvent, RotationEvents
from virt_admit_certs.rotation_status import ReadinessCondition, RotatorStatus
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.server_clock import ServerClock
from virt_admit_certs.stores.protocol import Store
from virt_admit_certs.webhook_configurations import WebhookConfigurations

_READY_WITHOUT_BUNDLE: Final = 30.0  # seconds after the start
# seconds between two reloads for new connections, and between two requested rounds
_RELOAD_EVERY: Final = 1.0
_MAX_ROUNDS: Final = 10  # without a pause: a save that never succeeds must not use a whole CPU


class Rotator:
    """Runs the reconcile loop of one store, and reloads it for new connections."""

    def __init__(
        self,
        store: Store,
        settings: RotationSettings,
        *,
        set_certificate: Callable[[bytes, bytes], None],
        get_settings: Callable[[], RotationSettings] | None = None,
        configurations: WebhookConfigurations | None = None,
        on_event: OnEvent = lambda _event, _label: None,
        clock: ServerClock | None = None,
        identity: str = "",
    ) -> None:
        """Prepare the loop. It reads nothing yet.

        Args:
            store: where the certificates are.
            settings: the settings of the first round.
            set_certificate: takes the chain and the key as PEM, and raises if it cannot use them.
            get_settings: returns the settings of each round. While it raises RotationSettingsError,
                the last ones remain in force.
            configurations: the webhook configurations that get the bundle; None if no API server
                needs it.
            on_event: counts events.
            clock: the clock that certificates are verified against.
            identity: the name of this process in the notes of the store.
        """
        self.clock = clock or ServerClock()
        self._events = RotationEvents(on_event)
        self._publisher = BundlePublisher(configurations, self._events)
        self._presenter = CertificatePresenter(set_certificate, self._events)
        self._reconciler = Reconciler(
            store,
            settings,
            get_settings=get_settings or (lambda: settings),
            publisher=self._publisher,
            presenter=self._presenter,
            events=self._events,
            clock=self.clock,
            identity=identity or f"{socket.gethostname()}/{os.getpid()}",
        )
        self._lock = threading.RLock()  # a round and a reload for a connection exclude each other
        self._started = time.monotonic()
        self._requested = threading.Event()
        self._requested_at = -math.inf
        self._reconciled = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def settings(self) -> RotationSettings:
        """The settings of the last round."""
        return self._reconciler.settings

    @property
    def status(self) -> RotatorStatus:
        """The result of the last round."""
        return self._reconciler.status

    def start(self, patience: float = 0.0) -> None:
        """Start the thread, in the process that serves: a thread does not survive a fork.

        Return when no step is due, or after ``patience`` seconds, because an API server may be
        slow.
        """
        self._thread = threading.Thread(target=self._run, name="certs", daemon=True)
        self._thread.start()
        self._reconciled.wait(patience)

    def stop(self, timeout: float = 2.0) -> None:
        """Stop the thread. A round that takes longer than ``timeout`` seconds is abandoned."""
        self._stopping.set()
        self._requested.set()
        if self._thread:
            self._thread.join(timeout)

    def request_reconcile(self) -> None:
        """Start a round now, at most once a second,
        for example because a client distrusts the certificate.
        """
        if time.monotonic() - self._requested_at >= _RELOAD_EVERY:
            self._requested_at = time.monotonic()
            self._requested.set()

    def reconcile(self) -> None:
        """Do rounds until no step is due. Never raises."""
        for _ in range(_MAX_ROUNDS):
            if not self.reconcile_once():
                return
            # so that two replicas do not collide again
            self._stopping.wait(random.uniform(0, 0.05))  # noqa: S311

    def reconcile_once(self) -> bool:
        """Do one round; return whether something changed, so that the next should follow at once.

        Never raises.
        """
        with self._lock:
            try:
                return self._reconciler.reconcile_once()
            except Exception as error:  # nothing may end the loop
                self._events.error(error)
                return False

    def reload_if_changed(self) -> None:
        """Reload the certificate if the store changed, without network calls. Never raises.

        Called for each new connection. It looks at the store at most once a second, which takes
        microseconds.
        """
        reconciler = self._reconciler
        if time.monotonic() - reconciler.loaded_at < _RELOAD_EVERY:
            return
        try:
            if reconciler.store_changed():
                if self._publisher.needs_requests:
                    # the loop publishes the bundle before it presents the certificate
                    self.request_reconcile()
                elif self._lock.acquire(blocking=False):
                    try:
                        reconciler.load()
                    finally:
                        self._lock.release()
                else:
                    # do not block handshakes while a round generates keys: the next connection
                    # looks again
                    return
        except Exception as error:
            self._events.error(error)
        reconciler.loaded_at = time.monotonic()

    def readiness(self) -> tuple[ReadinessCondition, ...]:
        """Return the conditions of readiness; the process is ready if each of them is."""
        waited = time.monotonic() - self._started >= _READY_WITHOUT_BUNDLE
        return self._presenter.readiness(self.clock.now()), self._publisher.readiness(waited=waited)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.reconcile()
            self._reconciled.set()
            interval = self.settings.check_interval.total_seconds()
            # spreads the load
            self._requested.wait(interval * random.uniform(0.8, 1.2))  # noqa: S311
            self._requested.clear()
