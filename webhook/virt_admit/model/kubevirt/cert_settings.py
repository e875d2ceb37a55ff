"""How long the certificates of HyperConverged, KubeVirt and CDI live.

Each resource has groups (``ca``, ``server``, in CDI also ``client``) of two durations: how long a certificate is
valid, and how long before its end it is renewed. What is not set has a default; KubeVirt also has three older
fields, which win over the newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model import kinds
from virt_admit.model.kinds import CDI, HCO, KUBEVIRT, Kind
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Field, Object
from virt_admit.model.units import HOUR, parse_duration, show

CA: Final = "ca"
SERVER: Final = "server"
CLIENT: Final = "client"
DURATION: Final = "duration"
RENEW_BEFORE: Final = "renewBefore"


class _Default(NamedTuple):
    """Nanoseconds that hold where a group is silent."""

    duration: int
    renew_before: int | None
    """None: a fifth of the duration that is in force."""


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
"""KubeVirt's older fields, and what they stand for."""

CDI_REFRESH_AGE: Final[Mapping[str, int]] = {CA: 24 * HOUR, SERVER: 12 * HOUR, CLIENT: 12 * HOUR}
"""CDI renews a certificate at this age, in nanoseconds, where ``renewBefore`` is not set (cert/factory.go)."""


@dataclass(frozen=True, slots=True)
class Written:
    """One duration that an object sets."""

    group: str
    field: Field
    value: int | None
    """Nanoseconds; None where it is no duration, is negative, or is a lifetime of zero."""
    problem: str = ""
    """What is wrong with it, for texts."""


@dataclass(frozen=True, slots=True)
class Group:
    """The certificates of one kind: where their durations stand, and the nanoseconds that are in force."""

    name: str
    field: Field
    duration_field: Field
    renew_before_field: Field
    duration: int
    renew_before: int


def block(obj: Object) -> Field:
    """Where the object keeps the settings of its certificates."""
    return setting(obj, Setting.CERTIFICATES)


def written(obj: Object) -> Iterator[Written]:
    """Every duration that the object sets, also where an older field of KubeVirt wins over it."""
    kind, place = kinds.of(obj), block(obj)
    for name in _defaults(kind):
        for role in (DURATION, RENEW_BEFORE):
            if place[name][role].present:
                yield _read(name, place[name][role], role)
    if kind is KUBEVIRT:
        for older, (name, role) in DEPRECATED.items():
            if place[older].present:
                yield _read(name, place[older], role)


def groups(obj: Object) -> Iterator[Group]:
    """The groups of a HyperConverged, KubeVirt or CDI; a group with an invalid value cannot be judged, and is left out.

    In KubeVirt an older field wins over what it stands for.
    """
    kind, place = kinds.of(obj), block(obj)
    for name, default in _defaults(kind).items():
        duration_field = _place(kind, place, name, DURATION)
        renew_before_field = _place(kind, place, name, RENEW_BEFORE)
        duration = _in_force(name, duration_field, DURATION, default.duration)
        if duration is None:
            continue
        later = duration // 5 if default.renew_before is None else default.renew_before
        renew_before = _in_force(name, renew_before_field, RENEW_BEFORE, later)
        if renew_before is not None:
            yield Group(name, place[name], duration_field, renew_before_field, duration, renew_before)


def _defaults(kind: Kind | None) -> Mapping[str, _Default]:
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
    if value < 0:
        return Written(group, field, None, f"{show(field.value)} is negative: write a duration such as 48h")
    if value == 0 and role == DURATION:
        return Written(
            group,
            field,
            None,
            f"{show(field.value)} lets certificates expire at once: write a duration such as 48h",
        )
    return Written(group, field, value)
