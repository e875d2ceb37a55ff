"""What to do next: a pure function of what is stored, what was seen, the time and the settings.

Eight steps keep certificates alive; the first one whose condition holds is due:

========= ========================================================================================
restore   the signer is damaged, this process remembers it: put it back and announce its successor
bootstrap the signer is damaged and nobody remembers it: begin anew
promote   the announced signer is trusted everywhere: serve under it, certified by the old one too
note      the time of the last promotion is not known: the wait for the end of the old signers starts over
retire    every serving cert of the older signers has expired: trust the signer alone
announce  the signer comes to its end: make the next one and let it spread before anything uses it
reissue   the serving cert cannot be used: make a new one
renew     the serving cert comes to its end: make a new one
========= ========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from virt_admit_certs.issue import (
    BACKDATED,
    KEY_KINDS,
    MAX_SIGNERS,
    SKEW,
    Certificate,
    Pair,
    State,
    bound,
    canonical_name,
    issued_by,
    kind_of,
    names_of,
    permits,
    valid,
)

StepName = Literal["restore", "bootstrap", "promote", "note", "retire", "announce", "reissue", "renew"]

STEPS: Final[tuple[StepName, ...]] = get_args(StepName)


@dataclass(frozen=True, slots=True)
class Step:
    """A step that is due, and why."""

    name: StepName
    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a process knows beside the store."""

    injected: bool = True
    """Every existing webhook configuration of ours carries exactly the stored bundle."""
    remembered: State | None = None
    """The last good state, if this process loaded it shortly before the signer was damaged."""
    published: tuple[Certificate, ...] = ()
    """The CA certificates that the configurations carry now. Read only while the signer is damaged."""


# Settings


class SettingsError(ValueError):
    """A setting that cannot be; the text names it and its value."""


_UNITS: Final = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_DURATION: Final = re.compile(r"([0-9]+)(ms|[dhms])")
_SHORTEST: Final = timedelta(minutes=10)  # as in HyperConverged's own validation of its certConfig
_LONGEST: Final = timedelta(days=36_500)  # certificates cannot end after the year 9999


def parse_duration(text: str) -> timedelta:
    """Read ``48h``, ``4h48m``, ``30d`` or ``90s``. Raises ValueError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 48h, 4h48m, 30d or 90s")
    try:
        return sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


def show_duration(duration: timedelta) -> str:
    """The shortest text that :func:`parse_duration` reads back; whole milliseconds."""
    text = ""
    for unit in ("h", "m", "s", "ms"):
        count, duration = divmod(duration, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"


SCHEDULE: Final = ("serving-duration", "serving-renew-before", "signer-duration", "signer-renew-before")

PROFILES: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "daily": ("48h", "24h", "720h", "360h"),
    "kubevirt": ("24h", "4h48m", "168h", "33h36m"),
    "hco": ("24h", "12h", "48h", "24h"),
    "15d": ("30d", "15d", "120d", "60d"),
    "yearly": ("730d", "365d", "3650d", "1825d"),
    "cluster": ("24h", "12h", "48h", "24h"),
}
"""The values of :data:`SCHEDULE` in each named schedule; in ``cluster`` those that HyperConverged leaves open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The schedule, and what is issued. A field is the setting of that name with ``-`` for ``_``."""

    serving_duration: timedelta = timedelta(hours=48)
    serving_renew_before: timedelta = timedelta(hours=24)
    signer_duration: timedelta = timedelta(hours=720)
    signer_renew_before: timedelta = timedelta(hours=360)
    propagation: timedelta = timedelta(seconds=60)
    """The shortest time between the announcement of a signer and its first use."""
    check_interval: timedelta = timedelta(seconds=10)
    """Time between two rounds of the loop, ±20 %."""
    key: str = "p256"
    name_constraints: bool = False
    """Signers are bound to the names."""
    names: tuple[str, ...] = field(default=())
    """DNS names and IP addresses of the serving cert. Not a flag of this group: the edge composes them."""

    @property
    def schedule(self) -> dict[str, timedelta]:
        """The values of :data:`SCHEDULE`."""
        return {name: getattr(self, name.replace("-", "_")) for name in SCHEDULE}

    @property
    def minimum_age(self) -> timedelta:
        """No serving cert is renewed younger than this: 60 s, less only where unsafe intervals are allowed."""
        return min(timedelta(seconds=60), self.serving_duration / 10)

    @property
    def retire_after(self) -> timedelta:
        """How long after a promotion the last serving cert of an older signer has surely expired."""
        return self.serving_duration + min(timedelta(minutes=5), self.serving_duration / 2)

    @property
    def worth_restoring(self) -> timedelta:
        """A remembered signer that lives shorter than this is not put back."""
        return min(timedelta(minutes=1), self.signer_duration / 10)


SETTINGS: Final = (*(item.name.replace("_", "-") for item in fields(Settings) if item.name != "names"), "profile")
"""The names of all settings: flag ``--certs-<name>``, environment ``VIRT_ADMIT_CERTS_<NAME>``."""


def parse_settings(values: Mapping[str, str], *, names: tuple[str, ...] = (), unsafe: bool = False) -> Settings:
    """Settings from texts by name (see :data:`SETTINGS`); what is not given comes from the profile.

    ``unsafe`` lifts the lower limits, for tests that rotate every few seconds. Raises SettingsError.
    """
    unknown = sorted(set(values) - set(SETTINGS))
    if unknown:
        raise SettingsError(f"unknown setting {unknown[0]}; known are {', '.join(SETTINGS)}")
    profile = values.get("profile", "daily")
    if profile not in PROFILES:
        raise SettingsError(f"profile is {profile}; it must be one of {', '.join(PROFILES)}")
    texts = {**dict(zip(SCHEDULE, PROFILES[profile], strict=True)), **values}
    durations: dict[str, timedelta] = {}
    for name in (*SCHEDULE, "propagation", "check-interval"):
        if name in texts:
            try:
                durations[name.replace("-", "_")] = parse_duration(texts[name])
            except ValueError as error:
                raise SettingsError(f"{name}: {error}") from None
    try:
        wanted = tuple(dict.fromkeys(canonical_name(name) for name in names))
    except ValueError as error:
        raise SettingsError(f"cert-name: {error}") from None
    constraints = values.get("name-constraints", "off")
    if constraints not in ("on", "off"):
        raise SettingsError(f"name-constraints is {constraints}; it must be on or off")
    settings = Settings(**durations, key=values.get("key", "p256"), name_constraints=constraints == "on", names=wanted)
    check(settings, unsafe=unsafe)
    return settings


def check(settings: Settings, *, unsafe: bool = False) -> None:
    """Refuse settings under which certificates would not stay alive. Raises SettingsError with names and values."""
    if settings.key not in KEY_KINDS:
        raise SettingsError(f"key is {settings.key}; it must be one of {', '.join(KEY_KINDS)}")
    schedule = settings.schedule
    for name, value in {
        **schedule,
        "propagation": settings.propagation,
        "check-interval": settings.check_interval,
    }.items():
        if value > _LONGEST:
            raise SettingsError(f"{name} is {show_duration(value)}; it must be at most {show_duration(_LONGEST)}")
    most_often = timedelta(milliseconds=10 if unsafe else 1000)
    if settings.check_interval < most_often:
        found, least = show_duration(settings.check_interval), show_duration(most_often)
        raise SettingsError(f"check-interval is {found}; it must be at least {least}")
    for name, value in schedule.items():
        shortest = timedelta(seconds=1) if unsafe else _SHORTEST
        if value < shortest:
            raise SettingsError(f"{name} is {show_duration(value)}; it must be at least {show_duration(shortest)}")
    for role in ("serving", "signer"):
        life, before = schedule[f"{role}-duration"], schedule[f"{role}-renew-before"]
        if before >= life:
            raise SettingsError(
                f"{role}-renew-before is {show_duration(before)}; "
                f"it must be shorter than {role}-duration, which is {show_duration(life)}"
            )
    if settings.signer_duration < settings.serving_duration:
        raise SettingsError(
            f"signer-duration is {show_duration(settings.signer_duration)}; "
            f"it must not be shorter than serving-duration, which is {show_duration(settings.serving_duration)}"
        )
    overlap = 2 * settings.propagation + timedelta(hours=1)
    if not unsafe and settings.signer_renew_before < overlap:
        raise SettingsError(
            f"signer-renew-before is {show_duration(settings.signer_renew_before)}; it must be at least twice "
            f"propagation, which is {show_duration(settings.propagation)}, and an hour: {show_duration(overlap)}"
        )


# The plan


def plan(state: State, seen: Seen, now: datetime, settings: Settings) -> Step | None:
    """The step that is due, or None."""
    signer = state.signer
    if signer is None or not valid(signer.cert, now):
        reason = _signer_fault(state, now)
        if can_restore(seen, now, settings):
            return Step("restore", reason)
        return Step("bootstrap", reason)
    following = state.next if state.next and valid(state.next.cert, now) else None
    if following and seen.injected and now >= announced_at(state, following, now) + settings.propagation:
        return Step("promote", "the announced signer has spread")
    others = [cert for cert in state.bundle if cert != signer.cert]
    if others and not state.announced:
        promoted = promoted_at(state, now)
        if promoted is None:
            return Step("note", "when the signer was promoted is not known")
        if now >= promoted + settings.retire_after or all(cert.not_valid_after_utc <= now for cert in others):
            return Step("retire", "the last serving cert of the older signers has expired")
    if following is None and (reason := _announce_reason(state, signer, now, settings)):
        return Step("announce", reason)
    if reason := serving_fault(state, now, settings):
        return Step("reissue", reason)
    if state.serving and (reason := _renew_reason(state, state.serving.cert, now, settings)):
        return Step("renew", reason)
    return None


def can_restore(seen: Seen, now: datetime, settings: Settings) -> bool:
    """Whether a signer is remembered that still lives long enough."""
    signer = seen.remembered.signer if seen.remembered else None
    return signer is not None and valid(signer.cert, now) and valid(signer.cert, now + settings.worth_restoring)


def announced_at(state: State, following: Pair, now: datetime) -> datetime:
    """When the next signer was announced, from the note or else from the certificate itself."""
    return _past(state, "announced-at", now) or following.cert.not_valid_before_utc + BACKDATED


def promoted_at(state: State, now: datetime) -> datetime | None:
    """When the signer was promoted, or None if nobody knows."""
    return _past(state, "promoted-at", now)


def note_time(state: State, note: str) -> datetime | None:
    """A time from the notes; None if it is missing or unreadable."""
    try:
        at = datetime.fromisoformat(state.notes.get(note, ""))
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else None


def _past(state: State, note: str, now: datetime) -> datetime | None:
    at = note_time(state, note)
    return at if at and at <= now + SKEW else None


def asked(state: State) -> Literal["serving", "signer"] | None:
    """Which rotation somebody asked for (note ``rotate``: ``<what>/<anything>``) that has not been done yet."""
    request = state.notes.get("rotate", "")
    if request == state.notes.get("rotate-done"):
        return None
    match request.partition("/")[0]:
        case "serving":
            return "serving"
        case "signer":
            return "signer"
    return None


def phase(state: State) -> str:
    """In one word where a state stands: empty, steady, announced (next signer spreads) or overlap (old one fades)."""
    if state.signer is None:
        return "empty"
    if state.announced:
        return "announced"
    return "overlap" if len(state.bundle) > 1 else "steady"


def cert_fault(name: str, cert: Certificate, now: datetime) -> str:
    """Why a certificate cannot be used at ``now``, or an empty text."""
    if now >= cert.not_valid_after_utc:
        return f"{name} has expired at {cert.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if not valid(cert, now):
        return f"{name} is not valid before {cert.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    return ""


def serving_fault(state: State, now: datetime, settings: Settings) -> str:
    """Why the serving cert must not be shown, or an empty text."""
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


def servable_names(signer: Certificate, settings: Settings) -> tuple[str, ...]:
    """The wanted names that the signer may sign for; those that it may not wait for the next one."""
    return tuple(name for name in settings.names if permits(signer, name)) or settings.names


def renew_at(cert: Certificate, settings: Settings) -> datetime:
    """When a serving cert becomes due.

    A serving cert whose life its signer cut short is renewed proportionally late, and never again before a tenth
    of its life has passed: otherwise it would be due in every round.
    """
    made = cert.not_valid_before_utc + BACKDATED
    life = max(cert.not_valid_after_utc - made, timedelta())
    before = settings.serving_renew_before * min(1.0, life / settings.serving_duration)
    return max(cert.not_valid_after_utc - before, made + max(settings.minimum_age, life / 10))


def deadlines(state: State, settings: Settings) -> Iterator[datetime]:
    """Every time at which a step of this state can become due by the clock alone."""
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


def upcoming(state: State, seen: Seen, now: datetime, settings: Settings) -> tuple[Step, datetime] | None:
    """The next step and when it is due, if nothing but the clock changes."""
    for at in (now, *sorted(at for at in deadlines(state, settings) if at > now)):
        step = plan(state, seen, at, settings)
        if step:
            return step, at
    return None


def _signer_fault(state: State, now: datetime) -> str:
    if state.signer is None:
        return _faults(state, "ca.")
    return cert_fault("the signer", state.signer.cert, now)


def _announce_reason(state: State, signer: Pair, now: datetime, settings: Settings) -> str:
    if state.announced:
        if state.next is None:
            return _faults(state, "next.")
        return cert_fault("the announced signer", state.next.cert, now)
    if sum(cert.not_valid_after_utc > now for cert in state.bundle) >= MAX_SIGNERS:
        return ""
    if asked(state) == "signer":
        return "a rotation of the signer was asked for"
    if now >= signer.cert.not_valid_after_utc - settings.signer_renew_before:
        return f"the signer expires at {signer.cert.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if kind_of(signer.key) != settings.key:
        return f"the signer has a {kind_of(signer.key)} key; wanted is {settings.key}"
    if refused := [name for name in settings.names if not permits(signer.cert, name)]:
        return f"the signer may not sign for {', '.join(refused)}"
    if settings.name_constraints and not bound(signer.cert):
        return "the signer is not bound to names"
    return ""


def _renew_reason(state: State, serving: Certificate, now: datetime, settings: Settings) -> str:
    if asked(state) == "serving":
        return "a new serving cert was asked for"
    if now >= renew_at(serving, settings):
        return f"the serving cert expires at {serving.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return ""


def _faults(state: State, prefix: str) -> str:
    return "; ".join(fault for fault in state.faults if fault.startswith(prefix))
