"""Releases that objects may be judged against (``--target``),
and what each of them removes or changes.

The tables are package data, read only when needed. docs/upstream.md describes how they are made.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

from virt_admit.model.messages import did_you_mean

KUBEVIRT: Final = "kubevirt"
HYPERCONVERGED: Final = "hyperconverged"
KUBERNETES: Final = "kubernetes"
COMPONENTS: Final = (KUBEVIRT, HYPERCONVERGED, KUBERNETES)

FOLDER: Final = Path(__file__).parent / "release_tables"
"""Tables of facts about releases and CPU models."""
_RELEASE: Final = r"v?([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]{1,6})?"


@functools.cache
def table(component: str) -> Mapping[str, Any]:
    """Return the table of a component."""
    loaded: Mapping[str, Any] = json.loads(
        (FOLDER / f"{component}.json").read_text(encoding="utf-8")
    )
    return loaded


def order(release: str) -> tuple[int, ...]:
    """Return a sort key of a release such as ``1.10``."""
    return tuple(map(int, release.split(".")))


def releases(component: str) -> tuple[str, ...]:
    """Return the releases of a component that ``--target`` accepts, oldest first."""
    return tuple(sorted(table(component)["releases"], key=order))


def about(component: str, release: str) -> Mapping[str, Any]:
    """Return what the table says about one release; empty if the release is not in it."""
    found: Mapping[str, Any] = table(component)["releases"].get(release, {})
    return found


def before(component: str, release: str) -> str:
    """Return the release before this one; empty if the table does not have it."""
    return max(
        (each for each in releases(component) if order(each) < order(release)),
        key=order,
        default="",
    )


def reached(component: str, running: tuple[int, ...]) -> str:
    """Return the newest release of the table up to the one that runs;
    empty if the table has only newer ones.
    """
    return max(
        (each for each in releases(component) if order(each) <= running), key=order, default=""
    )


def removed_fields(component: str, kind: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a kind that the target release does not have any more, each with the
    release that removed it.

    A field is written as ``spec.volumes[].name``.
    """
    by_release: Mapping[str, Mapping[str, list[str]]] = table(component).get("removed_fields", {})
    for release in sorted(by_release, key=order):
        if order(release) <= order(target):
            yield from ((field, release) for field in by_release[release].get(kind, ()))


class UpgradeTarget(NamedTuple):
    """The releases that an upgrade leads to; empty for components that are not upgraded."""

    kubevirt: str = ""
    hyperconverged: str = ""
    kubernetes: str = ""

    def __bool__(self) -> bool:
        return bool(self.kubevirt or self.hyperconverged or self.kubernetes)

    def reaches(self, speaks: Mapping[str, str]) -> bool:
        """Whether this target has one of these components, in this release or later."""
        return any(
            (release := getattr(self, component)) and order(release) >= order(since)
            for component, since in speaks.items()
        )


NO_TARGET: Final = UpgradeTarget()

_MACHINES: Final = ("q35", "virt", "s390-ccw-virtio", "pseries")
"""The newest machine type of QEMU for each architecture, by its name without a version."""


def accepts(patterns: Iterable[str], machine: str) -> bool:
    """Return whether KubeVirt accepts a machine type: a pattern matches the whole of it."""
    return any(fnmatchcase(machine, pattern) for pattern in patterns)


def machine_of(patterns: Collection[str]) -> str:
    """Return a machine type that exists and that one of some patterns accepts; empty: none is
    known.
    """
    literal = (each for each in patterns if not set(each) & set("*?[\\"))
    return next((each for each in _MACHINES if accepts(patterns, each)), next(literal, ""))


def parse(text: str) -> UpgradeTarget:
    """Parse ``kubevirt=1.9,kubernetes=1.37``.

    A release of KubeVirt implies the release of HyperConverged that deploys it, unless one is
    named.

    Raises:
        ValueError: the text is not valid. The message lists the known components or releases.
    """
    named: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        component, equals, release = (part.strip() for part in item.partition("="))
        if component not in COMPONENTS or not equals:
            suggestion = did_you_mean(component, COMPONENTS) if equals else None
            hint = f"; did you mean {suggestion}" if suggestion else ""
            raise ValueError(
                f"{item!r} is not COMPONENT=RELEASE{hint}. Components: {', '.join(COMPONENTS)}"
            )
        if component in named:
            raise ValueError(f"{component} is named twice")
        named[component] = _known(component, release)
    if not named:
        raise ValueError(
            f"no release is named. Write COMPONENT=RELEASE; components: {', '.join(COMPONENTS)}"
        )
    if KUBEVIRT in named and HYPERCONVERGED not in named:
        named[HYPERCONVERGED] = _deploying(named[KUBEVIRT])
    return UpgradeTarget(**named)


def _known(component: str, release: str) -> str:
    found = re.fullmatch(_RELEASE, release)
    minor = f"{int(found[1])}.{int(found[2])}" if found else release
    if minor not in releases(component):
        raise ValueError(
            f"release {release!r} of {component} is not known. Known: "
            f"{', '.join(releases(component))}"
        )
    return minor


def _deploying(kubevirt: str) -> str:
    """Return the first release of HyperConverged that deploys this KubeVirt;
    empty if none is known.
    """
    every = releases(HYPERCONVERGED)
    return next(
        (release for release in every if about(HYPERCONVERGED, release)["kubevirt"] == kubevirt), ""
    )


# --- feature gates --------------------------------------------------------------------------------


@functools.cache
def kubevirt_gates() -> frozenset[str]:
    """Return the feature gates of every known release of KubeVirt,
    also of older and of unreleased ones.
    """
    gates = (gate for release in releases(KUBEVIRT) for gate in about(KUBEVIRT, release)["gates"])
    return frozenset((*gates, *table(KUBEVIRT)["gates_of_other_releases"]))


@functools.cache
def hyperconverged_gates() -> frozenset[str]:
    """Return the feature gates of every known release of HyperConverged."""
    every = (about(HYPERCONVERGED, release) for release in releases(HYPERCONVERGED))
    return frozenset(gate for release in every for gate in (*release["phases"], *release["fields"]))
