"""What the reconcile loop found, for metrics and readiness probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from virt_admit_certs.certificates import Certificate
from virt_admit_certs.state import CertificateState


@dataclass(frozen=True, slots=True)
class ReadinessCondition:
    """One condition of readiness."""

    name: str
    ready: bool
    text: str


@dataclass(frozen=True, slots=True)
class RotatorStatus:
    """The result of the last round of the reconcile loop."""

    checked: datetime | None = None
    """The last round that could read the store, by the API server's clock."""
    offset: float = 0.0
    """Seconds that the API server's clock is ahead of the local one."""
    injected: Mapping[str, bool] = field(default_factory=dict)
    """By kind of configuration: whether all its entries carry the bundle.
    Without configurations that do not exist.
    """
    state: CertificateState = field(default_factory=CertificateState)
    served: Certificate | None = None

    @property
    def certificates(self) -> dict[str, Certificate]:
        """Return what expires: ``serving`` (in use), ``signer``, and ``bundle_oldest``,
        the first to expire.
        """
        found = {
            "serving": self.served,
            "signer": self.state.signer.cert if self.state.signer else None,
        }
        found["bundle_oldest"] = min(
            self.state.bundle, key=lambda cert: cert.not_valid_after_utc, default=None
        )
        return {name: cert for name, cert in found.items() if cert is not None}
