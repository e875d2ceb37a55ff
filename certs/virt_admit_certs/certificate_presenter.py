"""Decide which of the stored serving certs the listener uses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from virt_admit_certs.certificates import (
    Certificate,
    Pair,
    certs_pem,
    issued_by,
    sha256,
    timestamp,
    valid,
)
from virt_admit_certs.keys import key_pem
from virt_admit_certs.names import good_for
from virt_admit_certs.plan import Observation, cert_fault, serving_fault
from virt_admit_certs.rotation_events import RotationEvents, UnusableCertificateError
from virt_admit_certs.rotation_status import ReadinessCondition
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.state import CertificateState

log = logging.getLogger(__name__)


class CertificatePresenter:
    """Gives the listener a stored serving cert, unless API servers might not trust it yet."""

    def __init__(
        self, set_certificate: Callable[[bytes, bytes], None], events: RotationEvents
    ) -> None:
        """``set_certificate`` takes the chain and the key as PEM,
        and raises if it cannot use them.
        """
        self._set_certificate = set_certificate
        self._events = events
        self._chain: tuple[Certificate, ...] = ()

    @property
    def served(self) -> Certificate | None:
        """The serving cert of new connections, or None."""
        return self._chain[0] if self._chain else None

    def present(
        self,
        state: CertificateState,
        observation: Observation,
        now: datetime,
        settings: RotationSettings,
    ) -> bool:
        """Use the serving cert of our own store if it is valid; return whether it is."""
        if state.serving is None or state.signer is None or serving_fault(state, now, settings):
            return False
        trusted = (
            observation.injected or bool(state.chain) or self._is_served_by(state.signer.cert, now)
        )
        if trusted:
            self._use(state.serving, state.chain)
        return True

    def _is_served_by(self, signer: Certificate, now: datetime) -> bool:
        """Return whether replacing what is served loses no trust:
        API servers might not trust a new signer yet.
        """
        return self.served is None or not valid(self.served, now) or issued_by(self.served, signer)

    def present_external(
        self, state: CertificateState, now: datetime, names: Sequence[str]
    ) -> None:
        """Use the serving cert of an external issuer.

        A certificate that is not valid is used only until a valid one exists: then the error of the
        client says why it is not valid.
        """
        fault = _external_fault(state, now, names)
        if fault:
            self._events.error(UnusableCertificateError(fault))
        if state.serving and (not fault or self.served is None or not valid(self.served, now)):
            self._use(state.serving, state.chain)

    def readiness(self, now: datetime) -> ReadinessCondition:
        """Return whether new connections get a valid certificate."""
        if self.served is None:
            return ReadinessCondition("certificate", False, "no certificate yet")
        fault = cert_fault("the serving cert", self.served, now)
        text = fault or f"valid until {timestamp(self.served.not_valid_after_utc)}"
        return ReadinessCondition("certificate", not fault, text)

    def _use(self, serving: Pair, rest: tuple[Certificate, ...]) -> None:
        chain = (serving.cert, *rest)
        if chain == self._chain:
            return
        try:
            self._set_certificate(certs_pem(chain), key_pem(serving.key))
        except Exception as error:
            self._events.error(error, "certificate")
            return
        self._chain = chain
        log.info(
            "certificate shown",
            extra={
                "sha256": sha256(chain[0])[:16],
                "not_after": timestamp(chain[0].not_valid_after_utc),
            },
        )


def _external_fault(state: CertificateState, now: datetime, names: Sequence[str]) -> str:
    """Return why the serving cert of an external issuer must not be used, or an empty text."""
    if state.serving is None:
        return "; ".join(fault for fault in state.faults if fault.startswith("tls."))
    missing = [name for name in names if not good_for(state.serving.cert, name)]
    if missing:
        return f"the serving cert is not for {', '.join(missing)}"
    return cert_fault("the serving cert", state.serving.cert, now)
