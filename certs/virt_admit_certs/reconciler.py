"""One round of the reconcile loop: load, publish, present, do the step that is due."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from virt_admit_certs.bundle_publisher import BundlePublisher
from virt_admit_certs.certificate_presenter import CertificatePresenter
from virt_admit_certs.certificates import certs_pem, sha256, timestamp, valid
from virt_admit_certs.plan import Observation, RotationStep, plan, upcoming
from virt_admit_certs.rotation_events import RotationEvents
from virt_admit_certs.rotation_status import RotatorStatus
from virt_admit_certs.schedule import RotationSettings, RotationSettingsError, show_duration
from virt_admit_certs.server_clock import ServerClock
from virt_admit_certs.state import CertificateState, bundle_of, parse, render
from virt_admit_certs.steps import perform
from virt_admit_certs.stores.protocol import Store

log = logging.getLogger(__name__)

_MEMORY: Final = timedelta(minutes=5)
"""How old the remembered state may be. An older one may be from before a rotation that this process
slept through.
"""
_WARN_OFFSET: Final = 60  # seconds between the two clocks


@dataclass(frozen=True, slots=True)
class _Round:
    """What a round of the loop starts from."""

    version: str | None
    state: CertificateState
    observation: Observation
    now: datetime


class Reconciler:
    """Keeps the certificates of one store alive. Not for several threads at once.

    If an external issuer fills the store, it only loads, publishes and presents.
    """

    def __init__(
        self,
        store: Store,
        settings: RotationSettings,
        *,
        get_settings: Callable[[], RotationSettings],
        publisher: BundlePublisher,
        presenter: CertificatePresenter,
        events: RotationEvents,
        clock: ServerClock,
        identity: str,
    ) -> None:
        self.settings = settings
        self.status = RotatorStatus()
        self.loaded_at = -math.inf
        """When the store was read last, or found to be unchanged; monotonic seconds."""
        self._store = store
        self._get_settings = get_settings
        self._publisher = publisher
        self._presenter = presenter
        self._events = events
        self._clock = clock
        self._identity = identity
        self._version: str | None = None
        self._last_good: tuple[CertificateState, datetime] | None = None
        self._damaged_since: datetime | None = None

    def reconcile_once(self) -> bool:
        """Do one round; return whether something changed,
        so that the next round should follow at once.
        """
        self._update_settings()
        return self._advance(self.load())

    def store_changed(self) -> bool:
        """Return whether the store changed since it was read, as far as microseconds can tell."""
        return self._store.stale(self._version)

    def load(self) -> _Round:
        """Read the store, publish the bundle, and present the serving cert."""
        loaded = self._store.load()
        self._clock.observe_date(loaded.date)
        now = self._clock.now()
        self._version = loaded.version
        self.loaded_at = time.monotonic()
        state = parse(loaded.data, loaded.notes)
        self._update_status(state, now)
        if abs(self._clock.offset) > _WARN_OFFSET:
            offset = round(self._clock.offset)
            self._events.warn("clock", "local clock differs from the API server's", offset=offset)
        if self._store.external:
            observation = self._publish_external(state, now)
            self._presenter.present_external(state, now, self.settings.names)
        else:
            observation = self._observe(state, now)
            if self._presenter.present(state, observation, now, self.settings):
                self._last_good = (state, now)
        self._update_status(state, now)
        return _Round(loaded.version, state, observation, now)

    def _update_settings(self) -> None:
        try:
            settings = self._get_settings()
        except RotationSettingsError as error:
            self._events.error(error, "settings")
            return
        if settings != self.settings:
            self.settings = settings
            data = {
                name.replace("-", "_"): show_duration(value)
                for name, value in settings.schedule.items()
            }
            log.info("certificate schedule", extra=data)

    def _update_status(self, state: CertificateState, now: datetime) -> None:
        self.status = RotatorStatus(
            checked=now,
            offset=self._clock.offset,
            injected=self._publisher.injected,
            state=state,
            served=self._presenter.served,
        )

    def _observe(self, state: CertificateState, now: datetime) -> Observation:
        """Publish the bundle if the signer is valid,
        or else find what a new signer can build on.
        """
        if state.signer and valid(state.signer.cert, now):
            self._damaged_since = None
            return Observation(
                injected=self._publisher.publish(lambda _published: certs_pem(state.bundle))
            )
        since = self._damaged_since = self._damaged_since or now
        remembered = None
        if self._last_good and abs(since - self._last_good[1]) <= _MEMORY:
            remembered = self._last_good[0]
        return Observation(
            injected=False, remembered=remembered, published=self._publisher.published()
        )

    def _publish_external(self, state: CertificateState, now: datetime) -> Observation:
        """Publish the CA of an external issuer.

        Earlier CAs stay in the bundle until they expire.
        """
        if not state.bundle:
            return Observation(injected=not self._publisher.needs_requests)
        return Observation(
            injected=self._publisher.publish(
                lambda published: certs_pem(bundle_of(now, state.bundle, published))
            )
        )

    def _advance(self, current: _Round) -> bool:
        if self._store.external:
            return False
        state, now, settings = current.state, current.now, self.settings
        step = plan(state, current.observation, now, settings)
        if step is None:
            return False
        after = perform(step, state, current.observation, now, settings)
        notes = {**after.notes, "rotated-by": self._identity}
        if not self._store.save(render(after), notes, current.version):
            self._events.count("conflict", "")
            return True
        self._events.count("step", step.name)
        log.info(
            "certificate step",
            extra=_log_data(step, after, upcoming(after, Observation(), now, settings)),
        )
        return True


def _log_data(
    step: RotationStep, after: CertificateState, following: tuple[RotationStep, datetime] | None
) -> dict[str, object]:
    """Return a step as data for the log: fingerprints and times, never PEM."""
    data: dict[str, object] = {
        "step": step.name,
        "reason": step.reason,
        "generation": after.notes["generation"],
    }
    if after.signer:
        data["signer"] = sha256(after.signer.cert)[:16]
    if after.serving:
        data["serving"] = sha256(after.serving.cert)[:16]
        data["not_after"] = timestamp(after.serving.cert.not_valid_after_utc)
    if following:
        data["next_step"] = following[0].name
        data["next_at"] = timestamp(following[1])
    return data
