"""Count and log what happens in the reconcile loop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from virt_admit_certs.errors import error_text
from virt_admit_certs.kube_api import ApiError

log = logging.getLogger(__name__)

OnEvent = Callable[[str, str], None]
"""Called for every event, ``(event, label)``: ``step`` and its name; ``error`` and its reason
(those of ApiError, or storage, certificate, settings, internal); ``conflict``, a lost race, with an
empty label.
"""

_WARN_EVERY: Final = 60.0  # seconds between two warnings of one kind


class UnusableCertificateError(Exception):
    """The certificate of an external issuer cannot be used."""


class RotationEvents:
    """Counts every event, and logs each kind of problem at most once a minute."""

    def __init__(self, on_event: OnEvent) -> None:
        self.count = on_event
        self._logged: dict[str, float] = {}

    def error(self, error: Exception, reason: str = "") -> None:
        """Count and log an error. The reconcile loop continues after each of them."""
        reason = reason or _reason(error)
        self.count("error", reason)
        traceback = error if reason == "internal" else None
        self.warn(
            reason, "certificate round failed", traceback, reason=reason, error=error_text(error)
        )

    def warn(
        self, kind: str, message: str, traceback: Exception | None = None, **data: object
    ) -> None:
        """Log a warning, at most once a minute for each kind."""
        now = time.monotonic()
        if now - self._logged.get(kind, -math.inf) >= _WARN_EVERY:
            self._logged[kind] = now
            log.warning(message, extra=data, exc_info=traceback)


def _reason(error: Exception) -> str:
    """Return the label under which an error is counted."""
    if isinstance(error, ApiError):
        return error.reason
    if isinstance(error, UnusableCertificateError):
        return "certificate"
    return "storage" if isinstance(error, OSError) else "internal"
