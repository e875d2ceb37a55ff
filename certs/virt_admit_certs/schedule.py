"""The rotation settings: how long certificates live, when they are renewed, and what is issued."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Final

from virt_admit_certs.keys import KEY_KINDS
from virt_admit_certs.names import canonical_name


class RotationSettingsError(ValueError):
    """A setting is not valid; the message names it and its value."""


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
    """Return the shortest text that :func:`parse_duration` reads, in whole milliseconds."""
    text = ""
    for unit in ("h", "m", "s", "ms"):
        count, duration = divmod(duration, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"


SCHEDULE: Final = (
    "serving-duration",
    "serving-renew-before",
    "signer-duration",
    "signer-renew-before",
)

PROFILES: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "daily": ("48h", "24h", "720h", "360h"),
    "kubevirt": ("24h", "4h48m", "168h", "33h36m"),
    "hco": ("24h", "12h", "48h", "24h"),
    "15d": ("30d", "15d", "120d", "60d"),
    "yearly": ("730d", "365d", "3650d", "1825d"),
    "cluster": ("24h", "12h", "48h", "24h"),
}
"""The values of :data:`SCHEDULE` in each profile; in ``cluster``, the defaults for what
HyperConverged leaves open.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationSettings:
    """The schedule, and what is issued. Each field is a setting, with ``_`` instead of ``-``."""

    serving_duration: timedelta = timedelta(hours=48)
    serving_renew_before: timedelta = timedelta(hours=24)
    signer_duration: timedelta = timedelta(hours=720)
    signer_renew_before: timedelta = timedelta(hours=360)
    propagation: timedelta = timedelta(seconds=60)
    """The minimum time between the announcement of a signer and its first use."""
    check_interval: timedelta = timedelta(seconds=10)
    """Time between two rounds of the reconcile loop, ±20 %."""
    key: str = "p256"
    name_constraints: bool = False
    """Signers get name constraints for ``names``."""
    names: tuple[str, ...] = field(default=())
    """DNS names and IP addresses of the serving cert. Not one of the settings:
    the command line composes them.
    """

    @property
    def schedule(self) -> dict[str, timedelta]:
        """Return the values of :data:`SCHEDULE`."""
        return {name: getattr(self, name.replace("-", "_")) for name in SCHEDULE}

    @property
    def minimum_age(self) -> timedelta:
        """Return the minimum age for a renewal: 60 s, less only if unsafe intervals are allowed."""
        return min(timedelta(seconds=60), self.serving_duration / 10)

    @property
    def retire_after(self) -> timedelta:
        """Return how long after a promotion the last serving cert of an older signer has certainly
        expired.
        """
        return self.serving_duration + min(timedelta(minutes=5), self.serving_duration / 2)

    @property
    def worth_restoring(self) -> timedelta:
        """Return the remaining life below which a remembered signer is not restored."""
        return min(timedelta(minutes=1), self.signer_duration / 10)


SETTINGS: Final = (
    *(item.name.replace("_", "-") for item in fields(RotationSettings) if item.name != "names"),
    "profile",
)
"""The names of all settings: flag ``--certs-<name>``, environment ``VIRT_ADMIT_CERTS_<NAME>``."""


def parse_settings(
    values: Mapping[str, str], *, names: tuple[str, ...] = (), unsafe: bool = False
) -> RotationSettings:
    """Parse settings given as texts by name (see :data:`SETTINGS`).

    The profile provides missing ones.

    Args:
        values: texts by the name of the setting.
        names: DNS names and IP addresses of the serving cert.
        unsafe: without lower limits, for tests that rotate every few seconds.

    Raises:
        RotationSettingsError: a setting is not valid.
    """
    unknown = sorted(set(values) - set(SETTINGS))
    if unknown:
        raise RotationSettingsError(
            f"unknown setting {unknown[0]}; known are {', '.join(SETTINGS)}"
        )
    profile = values.get("profile", "daily")
    if profile not in PROFILES:
        raise RotationSettingsError(
            f"profile is {profile}; it must be one of {', '.join(PROFILES)}"
        )
    texts = {**dict(zip(SCHEDULE, PROFILES[profile], strict=True)), **values}
    durations: dict[str, timedelta] = {}
    for name in (*SCHEDULE, "propagation", "check-interval"):
        if name in texts:
            try:
                durations[name.replace("-", "_")] = parse_duration(texts[name])
            except ValueError as error:
                raise RotationSettingsError(f"{name}: {error}") from None
    try:
        checked_names = tuple(dict.fromkeys(canonical_name(name) for name in names))
    except ValueError as error:
        raise RotationSettingsError(f"cert-name: {error}") from None
    constraints = values.get("name-constraints", "off")
    if constraints not in ("on", "off"):
        raise RotationSettingsError(f"name-constraints is {constraints}; it must be on or off")
    settings = RotationSettings(
        **durations,
        key=values.get("key", "p256"),
        name_constraints=constraints == "on",
        names=checked_names,
    )
    check(settings, unsafe=unsafe)
    return settings


def check(settings: RotationSettings, *, unsafe: bool = False) -> None:
    """Raise RotationSettingsError for settings under which certificates would expire."""
    if settings.key not in KEY_KINDS:
        raise RotationSettingsError(
            f"key is {settings.key}; it must be one of {', '.join(KEY_KINDS)}"
        )
    schedule = settings.schedule
    for name, value in {
        **schedule,
        "propagation": settings.propagation,
        "check-interval": settings.check_interval,
    }.items():
        if value > _LONGEST:
            raise RotationSettingsError(
                f"{name} is {show_duration(value)}; it must be at most {show_duration(_LONGEST)}"
            )
    most_often = timedelta(milliseconds=10 if unsafe else 1000)
    if settings.check_interval < most_often:
        found, least = show_duration(settings.check_interval), show_duration(most_often)
        raise RotationSettingsError(f"check-interval is {found}; it must be at least {least}")
    for name, value in schedule.items():
        shortest = timedelta(seconds=1) if unsafe else _SHORTEST
        if value < shortest:
            raise RotationSettingsError(
                f"{name} is {show_duration(value)}; it must be at least {show_duration(shortest)}"
            )
    for role in ("serving", "signer"):
        life, before = schedule[f"{role}-duration"], schedule[f"{role}-renew-before"]
        if before >= life:
            raise RotationSettingsError(
                f"{role}-renew-before is {show_duration(before)}; "
                f"it must be shorter than {role}-duration, which is {show_duration(life)}"
            )
    if settings.signer_duration < settings.serving_duration:
        raise RotationSettingsError(
            f"signer-duration is {show_duration(settings.signer_duration)}; it must not be shorter "
            f"than serving-duration, which is {show_duration(settings.serving_duration)}"
        )
    overlap = 2 * settings.propagation + timedelta(hours=1)
    if not unsafe and settings.signer_renew_before < overlap:
        raise RotationSettingsError(
            f"signer-renew-before is {show_duration(settings.signer_renew_before)}; it must be at "
            f"least twice propagation, which is {show_duration(settings.propagation)}, and an "
            f"hour: {show_duration(overlap)}"
        )
