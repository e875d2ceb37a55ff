"""Releases of KubeVirt, what each of them introduced, and feature gates.

A KubeVirt whose release is unknown is treated as the newest one.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from virt_admit.model.cluster import Cluster
from virt_admit.model.kubevirt.configuration import known_or_none, kubevirt, require_kubevirt
from virt_admit.model.objects import Object


class Version(NamedTuple):
    """A release of KubeVirt or of HyperConverged."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


_VERSION: Final = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?(?![0-9])")

NEWEST: Final = Version(1, 10)
"""The newest release of KubeVirt whose behaviour is built into this package."""


def parse_version(text: str | None) -> Version | None:
    """``v1.4.0-rc.1`` is read as 1.4.0; what does not begin with a version is None."""
    found = _VERSION.match(text or "")
    return Version(*(int(part or 0) for part in found.groups())) if found else None


def kubevirt_version(cluster: Cluster) -> Version | None:
    """The release that runs, from ``status.observedKubeVirtVersion``; None: unknown, to be taken as the newest."""
    return cluster.cached(_kubevirt_version)


def _kubevirt_version(cluster: Cluster) -> Version | None:
    kubevirt_ = known_or_none(kubevirt, cluster)
    return parse_version(kubevirt_.at("status", "observedKubeVirtVersion").text) if kubevirt_ is not None else None


def hco_release(hyperconverged_: Object) -> Version | None:
    """The release of the operator that serves a HyperConverged; None: unknown, to be taken as the newest."""
    for item in hyperconverged_.at("status", "versions").items():
        if item["name"].text == "operator":
            return parse_version(item["version"].text)
    return None


class Feature(enum.Enum):
    """What some release of KubeVirt changed, for whoever still runs an older one."""

    EXTERNAL = ("eviction strategy External", Version(0, 53))
    LIVE_MIGRATE_IF_POSSIBLE = ("eviction strategy LiveMigrateIfPossible", Version(1, 0))
    PERSISTENT_STATE = ("persistent vTPM and EFI on storage that is not shared can be migrated", Version(1, 4))
    VIRTIOFS = ("virtiofs can be migrated", Version(1, 5))
    PERSISTENT_RESERVATION = ("LUNs with persistent reservation can be migrated", Version(1, 9))

    @property
    def since(self) -> Version:
        """The first release with it."""
        return self.value[1]


def has_release(cluster: Cluster, since: Version) -> bool:
    """Whether the cluster's KubeVirt is of this release or later; an unknown one is the newest."""
    version = kubevirt_version(cluster)
    return version is None or version >= since


def newer_than_known(cluster: Cluster) -> bool:
    """Whether KubeVirt says that it is of a release that may know words that this package does not."""
    version = kubevirt_version(cluster)
    return version is not None and version[:2] > NEWEST[:2]


# --- feature gates -------------------------------------------------------------------------------------------------


class Gate(enum.Enum):
    """A feature gate whose state matters here: its name, the release that knows it, and since when it is on."""

    VGPU_LIVE_MIGRATION = ("VGPULiveMigration", Version(1, 8), None)
    DECENTRALIZED_LIVE_MIGRATION = ("DecentralizedLiveMigration", Version(1, 6), Version(1, 10))
    HYPERV_STRICT_CHECK = ("HypervStrictCheck", Version(0, 20), None)

    def __init__(self, gate: str, since: Version, on_since: Version | None) -> None:
        self.gate = gate
        self.since = since
        self.on_since = on_since


def gate_is_disabled(cluster: Cluster, gate: Gate) -> bool:
    """Whether KubeVirt can be seen and says that the gate be shut; never raises."""
    kubevirt_ = known_or_none(kubevirt, cluster)
    return kubevirt_ is not None and _said(kubevirt_, gate) is False


def gate_is_on(cluster: Cluster, gate: Gate) -> bool:
    """Whether a feature gate is open; a release before the gate ignores its name.

    Raises:
        Unseen: KubeVirt cannot be seen.
    """
    said = _said(require_kubevirt(cluster), gate)
    if said is None:
        return gate.on_since is not None and has_release(cluster, gate.on_since)
    return said and has_release(cluster, gate.since)


def _said(kubevirt_: Object, gate: Gate) -> bool | None:
    """What KubeVirt's lists say of a gate; opening it outweighs shutting it (featuregate#IsEnabled)."""
    developer = kubevirt_.at("spec", "configuration", "developerConfiguration")
    for key, state in (("featureGates", True), ("disabledFeatureGates", False)):
        if any(item.value == gate.gate for item in developer[key].items()):
            return state
    return None
