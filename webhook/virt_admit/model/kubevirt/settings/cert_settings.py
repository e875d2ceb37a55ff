"""Lifetimes of the certificates of HyperConverged, KubeVirt and CDI.

Each resource has groups (``ca``, ``server``, in CDI also ``client``) of two durations: the lifetime
of a certificate, and the time before its end at which it is renewed. Durations that are not set
have defaults. KubeVirt also has three deprecated fields, which override the newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.units import HOUR, parse_duration, show
from virt_admit.model.kubevirt.settings.configuration import Setting, setting

CA: Final = "ca"
SERVER: Final = "server"
CLIENT: Final = "client"
DURATION: Final = "duration"
RENEW_BEFORE: Final = "renewBefore"


class _Default(NamedTuple):
    """The durations of a group that sets none, in nanoseconds."""

    duration: int
    renew_before: int | None
    """None means a fifth of the effective duration."""


_CA_48H: Final = _Default(48 * HOUR, 24 * HOUR)
_LEAF_24H: Final = _Default(24 * HOUR, 12 * HOUR)

_DEFAULTS: Final[Mapping[Kind, Mapping[str, _Default]]] = {
    # the schema of hyperconvergeds.hco.kubevirt.io
    HCO: {CA: _CA_48H, SERVER: _LEAF_24H},
    # kubevirt/kubevirt:pkg/virt-operator/resource/apply/certificates.go
    KUBEVIRT: {CA: _Default(168 * HOUR, None), SERVER: _Default(24 * HOUR, None)},
    # kubevirt/containerized-data-importer:pkg/operator/resources/cert/factory.go
    CDI: {CA: _CA_48H, SERVER: _LEAF_24H, CLIENT: _LEAF_24H},
}

DEPRECATED: Final[Mapping[str, tuple[str, str]]] = {
    "caRotateInterval": (CA, DURATION),
    "certRotateInterval": (SERVER, DURATION),
    "caOverlapInterval": (CA, RENEW_BEFORE),
}
"""KubeVirt's deprecated fields, and the group and duration that each one sets."""

CDI_REFRESH_AGE: Final[Mapping[str, int]] = {CA: 24 * HOUR, SERVER: 12 * HOUR, CLIENT: 12 * HOUR}
"""The age in nanoseconds at which CDI renews a certificate if ``renewBefore`` is not set
(cert/factory.go).
"""


@dataclass(frozen=True, slots=True)
class Written:
    """One duration that an object sets."""

    group: str
    field: Field
    value: int | None
    """Nanoseconds; None: not a valid duration, negative, or a lifetime of zero."""
    problem: str = ""
    """What is wrong with the value, for messages."""


@dataclass(frozen=True, slots=True)
class Group:
    """The effective nanoseconds of one group of certificates, and the fields that set them."""

    name: str
    field: Field
    duration_field: Field
    renew_before_field: Field
    duration: int
    renew_before: int


def block(obj: Object) -> Field:
    """Return the block of certificate settings of an object."""
    return setting(obj, Setting.CERTIFICATES)


def written(obj: Object) -> Iterator[Written]:
    """Yield every duration that the object sets,
    including those that a deprecated field of KubeVirt overrides.
    """
    kind, place = kinds.of(obj), block(obj)
    for name in defaults(kind):
        for role in (DURATION, RENEW_BEFORE):
            if place[name][role].present:
                yield _read(name, place[name][role], role)
    if kind is KUBEVIRT:
        for older, (name, role) in DEPRECATED.items():
            if place[older].present:
                yield _read(name, place[older], role)


def groups(obj: Object) -> Iterator[Group]:
    """Yield the groups of a HyperConverged, KubeVirt or CDI,
    without groups that have an invalid value.

    In KubeVirt a deprecated field overrides its newer equivalent.
    """
    kind, place = kinds.of(obj), block(obj)
    for name, default in defaults(kind).items():
        duration_field = _place(kind, place, name, DURATION)
        renew_before_field = _place(kind, place, name, RENEW_BEFORE)
        duration = _in_force(name, duration_field, DURATION, default.duration)
        if duration is None:
            continue
        later = duration // 5 if default.renew_before is None else default.renew_before
        renew_before = _in_force(name, renew_before_field, RENEW_BEFORE, later)
        if renew_before is not None:
            yield Group(
                name, place[name], duration_field, renew_before_field, duration, renew_before
            )


def defaults(kind: Kind | None) -> Mapping[str, _Default]:
    """Return the default of each group of certificates of a kind."""
    return _DEFAULTS.get(kind, {}) if kind is not None else {}


def _place(kind: Kind | None, place: Field, group: str, role: str) -> Field:
    if kind is KUBEVIRT:
        for older, meaning in DEPRECATED.items():
            if meaning == (group, role) and place[older].present:
                return place[older]
    return place[group][role]


def _in_force(group: str, field: Field, role: str, default: int) -> int | None:
    return _read(group, field, role).value if field.present else default


def _read(group: str, field: Field, role: str) -> Written:
    try:
        value = parse_duration(field.value)
    except ValueError as error:
        return Written(group, field, None, str(error))
    problem = "is negative" if value < 0 else ""
    if value == 0 and role == DURATION:
        problem = "lets certificates expire at once"
    if not problem:
        return Written(group, field, value)
    words = f"{show(field.value)} {problem}: write a duration such as 48h"
    return Written(group, field, None, words)
