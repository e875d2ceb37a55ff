"""Decide the next step: a pure function of the stored state, the observation,
the time and the settings.

Eight steps keep certificates valid. The first one whose condition holds is due:

========= ========================================================================================
restore   the signer is damaged and this process remembers it: restore it and announce its successor
bootstrap the signer is damaged and not remembered: make a new one
promote   the announced signer is trusted everywhere: use it, certified by the old one too
note      the time of the last promotion is not known: restart the wait for the end of the old
          signers
retire    every serving cert of the older signers has expired: trust only the signer
announce  the signer expires soon: make the next one and publish it before its first use
reissue   the serving cert is not valid: make a new one
renew     the serving cert expires soon: make a new one
========= ========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from virt_admit_certs.certificates import BACKDATED, SKEW, Certificate, Pair, issued_by, valid
from virt_admit_certs.keys import kind_of
from virt_admit_certs.names import name_constraints_of, names_of, permits
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.state import MAX_SIGNERS, CertificateState

StepName = Literal[
    "restore", "bootstrap", "promote", "note", "retire", "announce", "reissue", "renew"
]

STEPS: Final[tuple[StepName, ...]] = get_args(StepName)


@dataclass(frozen=True, slots=True)
class RotationStep:
    """A step that is due, and why."""

    name: StepName
    reason: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What a process knows in addition to the store."""

    injected: bool = True
    """Every webhook configuration that exists carries exactly the stored bundle."""
    remembered: CertificateState | None = None
    """The last valid state, if this process loaded it shortly before the signer was damaged."""
    published: tuple[Certificate, ...] = ()
    """The CA certificates that the configurations carry now. Empty unless the signer is damaged."""


def plan(
    state: CertificateState, seen: Observation, now: datetime, settings: RotationSettings
) -> RotationStep | None:
    """Return the step that is due, or None."""
    signer = state.signer
    if signer is None or not valid(signer.cert, now):
        reason = _signer_fault(state, now)
        if can_restore(seen, now, settings):
            return RotationStep("restore", reason)
        return RotationStep("bootstrap", reason)
    following = state.next if state.next and valid(state.next.cert, now) else None
    if (
        following
        and seen.injected
        and now >= announced_at(state, following, now) + settings.propagation
    ):
        return RotationStep("promote", "the announced signer has spread")
    others = [cert for cert in state.bundle if cert != signer.cert]
    if others and not state.announced:
        promoted = promoted_at(state, now)
        if promoted is None:
            return RotationStep("note", "when the signer was promoted is not known")
        if now >= promoted + settings.retire_after or all(
            cert.not_valid_after_utc <= now for cert in others
        ):
            return RotationStep("retire", "the last serving cert of the older signers has expired")
    if following is None and (reason := _announce_reason(state, signer, now, settings)):
        return RotationStep("announce", reason)
    if reason := serving_fault(state, now, settings):
        return RotationStep("reissue", reason)
    if state.serving and (reason := _renew_reason(state, state.serving.cert, now, settings)):
        return RotationStep("renew", reason)
    return None


def can_restore(seen: Observation, now: datetime, settings: RotationSettings) -> bool:
    """Return whether a signer is remembered that remains valid long enough."""
    signer = seen.remembered.signer if seen.remembered else None
    return (
        signer is not None
        and valid(signer.cert, now)
        and valid(signer.cert, now + settings.worth_restoring)
    )


def announced_at(state: CertificateState, following: Pair, now: datetime) -> datetime:
    """Return when the next signer was announced, from the note or else from the certificate."""
    return _past(state, "announced-at", now) or following.cert.not_valid_before_utc + BACKDATED


def promoted_at(state: CertificateState, now: datetime) -> datetime | None:
    """Return when the signer was promoted, or None if that is not known."""
    return _past(state, "promoted-at", now)


def note_time(state: CertificateState, note: str) -> datetime | None:
    """Return a time from the notes; None if it is missing or not valid."""
    try:
        at = datetime.fromisoformat(state.notes.get(note, ""))
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else None


def _past(state: CertificateState, note: str, now: datetime) -> datetime | None:
    at = note_time(state, note)
    return at if at and at <= now + SKEW else None


def requested_rotation(state: CertificateState) -> Literal["serving", "signer"] | None:
    """Return the requested rotation (note ``rotate``: ``<what>/<anything>``) that is not done yet,
    or None.
    """
    request = state.notes.get("rotate", "")
    if request == state.notes.get("rotate-done"):
        return None
    match request.partition("/")[0]:
        case "serving":
            return "serving"
        case "signer":
            return "signer"
    return None


def phase(state: CertificateState) -> str:
    """Return the phase: empty, steady, announced (a next signer is published) or overlap (an old
    signer is trusted).
    """
    if state.signer is None:
        return "empty"
    if state.announced:
        return "announced"
    return "overlap" if len(state.bundle) > 1 else "steady"


def cert_fault(name: str, cert: Certificate, now: datetime) -> str:
    """Return why a certificate is not valid at ``now``, or an empty text."""
    if now >= cert.not_valid_after_utc:
        return f"{name} has expired at {cert.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if not valid(cert, now):
        return f"{name} is not valid before {cert.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    return ""


def serving_fault(state: CertificateState, now: datetime, settings: RotationSettings) -> str:
    """Return why the serving cert must not be used, or an empty text."""
    if state.serving is None:
        return _faults(state, "tls.")
    cert = state.serving.cert
    if fault := cert_fault("the serving cert", cert, now):
        return fault
    if state.signer is None or not issued_by(cert, state.signer.cert):
        return "the serving cert is not signed by the signer"
    wanted = servable_names(state.signer.cert, settings)
    if set(names_of(cert)) != set(wanted):
        return f"the serving cert is for {', '.join(names_of(cert))}; wanted is {', '.join(wanted)}"
    return ""


def servable_names(signer: Certificate, settings: RotationSettings) -> tuple[str, ...]:
    """Return the names that the signer may sign for; the others wait for the next signer."""
    return tuple(name for name in settings.names if permits(signer, name)) or settings.names


def renew_at(cert: Certificate, settings: RotationSettings) -> datetime:
    """Return when a serving cert is due for renewal.

    If its signer shortens its life, the renewal is proportionally late, and never before a tenth of
    its life has passed: otherwise it would be due in every round
    (external-secrets/external-secrets#1249).
    """
    made = cert.not_valid_before_utc + BACKDATED
    life = max(cert.not_valid_after_utc - made, timedelta())
    before = settings.serving_renew_before * min(1.0, life / settings.serving_duration)
    return max(cert.not_valid_after_utc - before, made + max(settings.minimum_age, life / 10))


def deadlines(state: CertificateState, settings: RotationSettings) -> Iterator[datetime]:
    """Yield every time at which a step of this state can become due by the clock alone."""
    if state.signer:
        end = state.signer.cert.not_valid_after_utc
        yield end
        yield end - settings.signer_renew_before
    if state.next:
        made = state.next.cert.not_valid_before_utc + BACKDATED
        yield (note_time(state, "announced-at") or made) + settings.propagation
        yield made + settings.propagation
        yield state.next.cert.not_valid_after_utc
    if state.serving:
        yield state.serving.cert.not_valid_after_utc
        yield renew_at(state.serving.cert, settings)
    for cert in state.bundle:
        yield cert.not_valid_after_utc
    promoted = note_time(state, "promoted-at")
    if promoted:
        yield promoted + settings.retire_after


def upcoming(
    state: CertificateState, seen: Observation, now: datetime, settings: RotationSettings
) -> tuple[RotationStep, datetime] | None:
    """Return the next step and when it is due, if only the clock changes."""
    for at in (now, *sorted(at for at in deadlines(state, settings) if at > now)):
        step = plan(state, seen, at, settings)
        if step:
            return step, at
    return None


def _signer_fault(state: CertificateState, now: datetime) -> str:
    if state.signer is None:
        return _faults(state, "ca.")
    return cert_fault("the signer", state.signer.cert, now)


def _announce_reason(
    state: CertificateState, signer: Pair, now: datetime, settings: RotationSettings
) -> str:
    if state.announced:
        if state.next is None:
            return _faults(state, "next.")
        return cert_fault("the announced signer", state.next.cert, now)
    if sum(cert.not_valid_after_utc > now for cert in state.bundle) >= MAX_SIGNERS:
        return ""
    if requested_rotation(state) == "signer":
        return "a signer rotation was requested"
    if now >= signer.cert.not_valid_after_utc - settings.signer_renew_before:
        return f"the signer expires at {signer.cert.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if kind_of(signer.key) != settings.key:
        return f"the signer has a {kind_of(signer.key)} key; wanted is {settings.key}"
    if refused := [name for name in settings.names if not permits(signer.cert, name)]:
        return f"the signer may not sign for {', '.join(refused)}"
    if settings.name_constraints and not name_constraints_of(signer.cert):
        return "the signer has no name constraints"
    return ""


def _renew_reason(
    state: CertificateState, serving: Certificate, now: datetime, settings: RotationSettings
) -> str:
    if requested_rotation(state) == "serving":
        return "a new serving cert was requested"
    if now >= renew_at(serving, settings):
        return f"the serving cert expires at {serving.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return ""


def _faults(state: CertificateState, prefix: str) -> str:
    return "; ".join(fault for fault in state.faults if fault.startswith(prefix))
