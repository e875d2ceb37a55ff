"""Releases of KubeVirt, what each of them introduced, and feature gates.

A KubeVirt whose release is unknown is treated as the newest one.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import configuration


class Version(NamedTuple):
    """A release of KubeVirt or of HyperConverged."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


_VERSION: Final = r"v?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?(?![0-9])"

NEWEST: Final = Version(1, 10)
"""The newest release of KubeVirt whose behaviour this package knows."""


def parse_version(text: str | None) -> Version | None:
    """Parse a version (``v1.4.0-rc.1`` is 1.4.0); return None if the text begins with none."""
    found = re.match(_VERSION, text or "")
    return Version(*(int(part or 0) for part in found.groups())) if found else None


@cached
def kubevirt_version(cluster: Cluster) -> Version | None:
    """Return the running release, from ``status.observedKubeVirtVersion``; None: unknown,
    treated as the newest.
    """
    kubevirt_ = configuration.known_or_none(configuration.kubevirt, cluster)
    if kubevirt_ is not None:
        return parse_version(kubevirt_.at("status", "observedKubeVirtVersion").text)
    return None


def hco_release(hyperconverged_: Object) -> Version | None:
    """Return the release of the operator of a HyperConverged; None: unknown, as the newest."""
    return parse_version(hyperconverged_.at("status", "versions").named("operator")["version"].text)


class Feature(enum.Enum):
    """Behaviour that a release of KubeVirt introduced, for clusters that still run an older one."""

    PENDING_TIMEOUTS = ("a migration whose target pod does not start is given up", Version(0, 48))
    EXTERNAL = ("eviction strategy External", Version(0, 53))
    LIVE_MIGRATE_IF_POSSIBLE = ("eviction strategy LiveMigrateIfPossible", Version(1, 0))
    BRIDGE_OPT_IN = (
        "annotation kubevirt.io/allow-pod-bridge-network-live-migration",
        Version(1, 0),
    )
    TSC_OF_SCHEDULABLE = (
        "the lowest TSC frequency is that of nodes with kubevirt.io/schedulable",
        Version(1, 0, 1),
    )
    TSC_TOLERANCE = ("TSC frequencies may differ by 250 ppm", Version(0, 59, 1))
    COPIES_FLAGGED = ("a migration that copies volumes tells libvirt so", Version(1, 4))
    MANUAL_RECOVERY = (
        "a VM whose volumes were copied in part is not started (ManualRecoveryRequired)",
        Version(1, 4, 1),  # 1.4.0 sets that only once the next VMI was made (pull request 13655)
    )
    RUNNING_DEPRECATED = ("the field running is deprecated", Version(1, 4))
    PERSISTENT_STATE = (
        "persistent vTPM and EFI on storage that is not shared can be migrated",
        Version(1, 4),
    )
    STATE_MOVES = (
        "a claim with the persistent state of a VM is moved with its volumes",
        Version(1, 4, 1),
    )
    OVERHEAD_CHECKED = (
        "virt-controller does not end if CDIConfig has no status.filesystemOverhead",
        Version(1, 4, 1),
    )
    VIRTIOFS = ("virtiofs can be migrated", Version(1, 5))
    SHARED_PATHS = ("virt-launcher names ReadWriteMany claims to libvirt as shared", Version(1, 5))
    WAIT_AS_RECEIVER = ("run strategy WaitAsReceiver", Version(1, 6))
    MORE_SLOTS = ("guests have 3 to 16 PCIe slots for devices that are plugged in", Version(1, 6))
    DISKS_LAST = ("disks are the last reason why a VMI cannot migrate", Version(1, 6))
    DATA_SOURCE_ARCHITECTURE = (
        "the architecture of a VM comes from its DataSource",
        Version(1, 6, 4),
    )
    EVACUATE_CANCEL = ("virtctl evacuate-cancel ends the evacuation of a VMI", Version(1, 7))
    ATTACHMENTS_PROTECTED = (
        "pods that attach volumes of a running VMI are not evicted",
        Version(1, 6, 1),
    )
    TARGET_NETWORK_INFO = (
        "target pods of migrations have the annotation kubevirt.io/network-info",
        Version(1, 6, 3),
    )
    COPIED_DISKS_COUNT = (
        "completionTimeoutPerGiB counts the disks that a migration copies",
        Version(1, 7, 2),
    )
    PERSISTENT_RESERVATION = ("LUNs with persistent reservation can be migrated", Version(1, 9))

    @property
    def since(self) -> Version:
        """The first release with this behaviour."""
        return self.value[1]


def has_release(cluster: Cluster, since: Version) -> bool:
    """Whether the cluster's KubeVirt has at least this release; an unknown one is the newest."""
    version = kubevirt_version(cluster)
    return version is None or version >= since


IF_POSSIBLE: Final = "LiveMigrateIfPossible"


def if_possible(cluster: Cluster) -> str:
    """Return the eviction strategy with which a drain shuts a VM down that cannot migrate: virt-api
    of a release before LiveMigrateIfPossible refuses the VM that has it.
    """
    known = has_release(cluster, Feature.LIVE_MIGRATE_IF_POSSIBLE.since)
    return IF_POSSIBLE if known else "None"


def shut_down_strategies(cluster: Cluster) -> str:
    """Return all such strategies: ``LiveMigrateIfPossible or None``."""
    return " or ".join(dict.fromkeys((if_possible(cluster), "None")))


def newer_than_known(cluster: Cluster) -> bool:
    """Whether KubeVirt reports a release that may accept values unknown to this package."""
    version = kubevirt_version(cluster)
    return version is not None and version[:2] > NEWEST[:2]


def may_accept(cluster: Cluster, value: object, suggestion: str | None) -> bool:
    """Whether KubeVirt may accept a value that this package does not know.

    A newer release may, and so may one that cannot be read: unseen never denies. Without a release
    a misspelt known value (one with a suggestion), an empty one and one that is not text still
    count as mistakes.
    """
    if kubevirt_version(cluster) is None:
        return isinstance(value, str) and value != "" and suggestion is None
    return newer_than_known(cluster)


# --- defaults that a release changed --------------------------------------------------------------

_KUBEVIRT_COMPLETION_TIMEOUT: Final = ((Version(1, 4), 150), (Version(0, 0), 800))
"""Seconds for each GB, newest first
(pkg/virt-config/virt-config.go#MigrationCompletionTimeoutPerGiB).
"""
_HCO_COMPLETION_TIMEOUT: Final = ((Version(1, 19), 20), (Version(1, 14), 150), (Version(0, 0), 800))
"""The same in HyperConverged's schema
(kubevirt/hyperconverged-cluster-operator:api/v1beta1/hyperconverged_types.go).
"""


def kubevirt_completion_timeout(cluster: Cluster) -> int:
    """Return the default of ``completionTimeoutPerGiB`` in the running KubeVirt, in seconds."""
    return _of_release(_KUBEVIRT_COMPLETION_TIMEOUT, kubevirt_version(cluster))


def hco_completion_timeout(cluster: Cluster) -> int:
    """Return the default of ``completionTimeoutPerGiB`` in the running HyperConverged,
    in seconds.
    """
    found = configuration.known_or_none(configuration.hyperconverged, cluster)
    return _of_release(_HCO_COMPLETION_TIMEOUT, hco_release(found) if found is not None else None)


def _of_release(defaults: tuple[tuple[Version, int], ...], release: Version | None) -> int:
    return next(
        (value for since, value in defaults if release is None or release >= since), defaults[-1][1]
    )


# --- feature gates --------------------------------------------------------------------------------


class Gate(enum.Enum):
    """A feature gate: its name, its first release, and the first one with it on by default."""

    # 1.8.0 to 1.8.4 migrate no GPU
    VGPU_LIVE_MIGRATION = ("VGPULiveMigration", Version(1, 9), None)
    DECENTRALIZED_LIVE_MIGRATION = ("DecentralizedLiveMigration", Version(1, 6), Version(1, 10))
    REBOOT_POLICY = ("RebootPolicy", Version(1, 8), Version(1, 9))
    MIGRATION_PRIORITY_QUEUE = ("MigrationPriorityQueue", Version(1, 7), Version(1, 9))
    MIGRATION_STALL_DETECTION = ("MigrationStallDetection", Version(1, 9), None)
    HOTPLUG_VOLUMES = ("HotplugVolumes", Version(0, 36), None)
    HYPERV_STRICT_CHECK = ("HypervStrictCheck", Version(0, 20), None)
    IMAGE_VOLUME = ("ImageVolume", Version(1, 6), Version(1, 9))
    ALIGN_CPUS = ("AlignCPUs", Version(1, 3), None)
    CONFIGURABLE_HYPERVISOR = ("ConfigurableHypervisor", Version(1, 8), None)
    VM_LIVE_UPDATE = ("VMLiveUpdateFeatures", Version(1, 1), Version(1, 5))

    def __init__(self, gate: str, since: Version, on_since: Version | None) -> None:
        self.gate = gate
        self.since = since
        self.on_since = on_since


def gate_is_disabled(cluster: Cluster, gate: Gate) -> bool:
    """Whether the known KubeVirt resource disables the gate; never raises."""
    kubevirt_ = configuration.known_or_none(configuration.require_kubevirt, cluster)
    return kubevirt_ is not None and _said(kubevirt_, gate) is False


def gate_is_set(cluster: Cluster, gate: Gate) -> bool:
    """Whether the known KubeVirt resource enables the gate itself; never raises."""
    kubevirt_ = configuration.known_or_none(configuration.require_kubevirt, cluster)
    return kubevirt_ is not None and _said(kubevirt_, gate) is True


def gate_is_on(cluster: Cluster, gate: Gate) -> bool:
    """Whether a feature gate is on. Releases older than the gate ignore its name.

    Raises:
        Unseen: KubeVirt cannot be read.
    """
    said = _said(configuration.require_kubevirt(cluster), gate)
    if said is None:
        return gate.on_since is not None and has_release(cluster, gate.on_since)
    return said and has_release(cluster, gate.since)


def gate_may_be_on(cluster: Cluster, gate: Gate) -> bool:
    """Whether a feature gate is on, or KubeVirt cannot be read; never raises."""
    try:
        return gate_is_on(cluster, gate)
    except Unseen:
        return True


def gate_is_known_on(cluster: Cluster, gate: Gate) -> bool:
    """Whether a feature gate is on, as far as KubeVirt can be read; never raises."""
    try:
        return gate_is_on(cluster, gate)
    except Unseen:
        return False


def _said(kubevirt_: Object, gate: Gate) -> bool | None:
    """Return the explicit state of a gate, or None.

    Enabling wins over disabling (featuregate#IsEnabled).
    """
    developer = kubevirt_.at("spec", "configuration", "developerConfiguration")
    for key, state in (("featureGates", True), ("disabledFeatureGates", False)):
        if any(item.value == gate.gate for item in developer[key].items()):
            return state
    return None
