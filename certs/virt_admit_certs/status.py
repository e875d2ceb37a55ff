"""Describe the certificates of a store: the value behind ``virt-admit certs status``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from virt_admit_certs.certificates import BACKDATED, Certificate, certs_pem, sha256, timestamp
from virt_admit_certs.names import names_of
from virt_admit_certs.plan import Observation, cert_fault, phase, serving_fault, upcoming
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.state import CertificateState, parse_bundle
from virt_admit_certs.webhook_configurations import WebhookConfiguration, WebhookEntry


@dataclass(frozen=True, slots=True)
class CertStatus:
    """A certificate; times are RFC 3339 in UTC."""

    subject: str
    issuer: str
    sha256: str
    not_before: str
    not_after: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepStatus:
    """The next step, if only the clock changes."""

    name: str
    reason: str
    at: str
    seconds: int
    """Seconds until the step is due; 0 if it is due now."""


@dataclass(frozen=True, slots=True)
class EntryStatus:
    """One entry of a webhook configuration."""

    configuration: str
    """Its kind."""
    name: str
    injected: bool
    """It carries exactly the bundle; for an external issuer, at least the bundle."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """Everything about the certificates of a store that is not secret."""

    phase: str
    signer: CertStatus | None
    next: CertStatus | None
    serving: CertStatus | None
    bundle: tuple[CertStatus, ...]
    step: StepStatus | None
    entries: tuple[EntryStatus, ...]
    clock_offset: float
    """Seconds that the API server's clock is ahead."""
    faults: tuple[str, ...]
    """What needs attention."""

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON data."""
        return {"version": 1, **asdict(self)}

    def as_text(self) -> str:
        """Return the status as lines for people."""
        lines = [f"phase      {self.phase}"]
        for role, cert in (("signer", self.signer), ("next", self.next), ("serving", self.serving)):
            if cert:
                lines.append(f"{role:<10} {cert.subject}, {cert.not_before} to {cert.not_after}")
                lines.append(f"{'':<10} sha256 {cert.sha256}")
                lines += [f"{'':<10} names {', '.join(cert.names)}"] if cert.names else []
            elif role != "next":
                lines.append(f"{role:<10} none")
        lines.append(f"bundle     {_count(len(self.bundle), 'signer')}")
        if self.step:
            when = (
                "now"
                if self.step.seconds == 0
                else f"in {_in_words(self.step.seconds)}, at {self.step.at}"
            )
            lines.append(f"next step  {self.step.name} {when}: {self.step.reason}")
        for entry in self.entries:
            if entry.injected:  # the others are in the faults
                lines.append(f"webhook    {entry.configuration} {entry.name} carries the bundle")
        if self.clock_offset:
            lines.append(
                f"clock      the API server is {self.clock_offset:+.0f} s from this machine"
            )
        lines += [f"attention  {fault}" for fault in self.faults]
        return "\n".join(lines) + "\n"


def status(
    state: CertificateState,
    now: datetime,
    settings: RotationSettings,
    *,
    configurations: Sequence[WebhookConfiguration] = (),
    external: bool = False,
    clock_offset: float = 0.0,
) -> StoreStatus:
    """Describe a state.

    With ``external``, another issuer owns the certificates: no signer and no plan.
    """
    entries = tuple(
        EntryStatus(configuration.kind, entry.name, _injected(entry, state, external))
        for configuration in configurations
        for entry in configuration.entries
    )
    injected = all(entry.injected for entry in entries)
    following = None if external else upcoming(state, Observation(injected=injected), now, settings)
    return StoreStatus(
        phase="external" if external else phase(state),
        signer=described(state.signer.cert) if state.signer else None,
        next=described(state.next.cert) if state.next else None,
        serving=described(state.serving.cert) if state.serving else None,
        bundle=tuple(described(cert) for cert in state.bundle),
        step=StepStatus(
            following[0].name,
            following[0].reason,
            timestamp(following[1]),
            max(0, round((following[1] - now).total_seconds())),
        )
        if following
        else None,
        entries=entries,
        clock_offset=clock_offset,
        faults=tuple(dict.fromkeys(_faults(state, now, settings, entries, external))),
    )


def _injected(entry: WebhookEntry, state: CertificateState, external: bool) -> bool:
    if external:  # earlier CAs remain in the bundle
        return set(state.bundle) <= set(parse_bundle(entry.bundle, []))
    return entry.bundle == certs_pem(state.bundle)


def _faults(
    state: CertificateState,
    now: datetime,
    settings: RotationSettings,
    entries: Iterable[EntryStatus],
    external: bool,
) -> Iterable[str]:
    yield from (fault for fault in state.faults if not external or fault.startswith("tls."))
    if state.serving and external:
        yield from filter(None, [cert_fault("the serving cert", state.serving.cert, now)])
        yield from _ends("the serving cert", state.serving.cert, now)
    elif state.serving:
        yield from filter(None, [serving_fault(state, now, settings)])
        yield from _ends("the serving cert", state.serving.cert, now, settings.serving_renew_before)
    if state.signer and not external:
        yield from filter(None, [cert_fault("the signer", state.signer.cert, now)])
        yield from _ends("the signer", state.signer.cert, now, settings.signer_renew_before)
    if state.next:
        yield from filter(None, [cert_fault("the announced signer", state.next.cert, now)])
    for entry in entries:
        if not entry.injected:
            yield f"{entry.configuration} {entry.name} does not carry the bundle"


def _ends(
    name: str, cert: Certificate, now: datetime, renew_before: timedelta = timedelta.max
) -> Iterable[str]:
    """Yield a fault if less than a quarter of its life remains, and its renewal is overdue."""
    life = cert.not_valid_after_utc - cert.not_valid_before_utc - BACKDATED
    left = cert.not_valid_after_utc - now
    if timedelta() < left < min(life / 4, renew_before):
        yield f"{name} expires in {_in_words(round(left.total_seconds()))} and has not been renewed"


def described(cert: Certificate) -> CertStatus:
    """Return the description of a certificate."""
    return CertStatus(
        subject=cert.subject.rfc4514_string(),
        issuer=cert.issuer.rfc4514_string(),
        sha256=sha256(cert),
        not_before=timestamp(cert.not_valid_before_utc),
        not_after=timestamp(cert.not_valid_after_utc),
        names=names_of(cert),
    )


def _in_words(seconds: int) -> str:
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return _count(seconds // size, word)
    return _count(seconds, "second")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
