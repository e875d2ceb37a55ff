"""Limits of live migrations, set for the cluster (HyperConverged, KubeVirt) or by a policy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, MIGRATION_POLICY, NAD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubevirt.settings.configuration import (
    Setting,
    known_or_none,
    kubevirt,
    setting,
)
from virt_admit.model.kubevirt.settings.versions import Version, hco_release
from virt_admit.model.messages import names

PER_CLUSTER: Final = "parallelMigrationsPerCluster"
PER_CLUSTER_UNSAID: Final = 5
"""The default (kubevirt/kubevirt:pkg/virt-config/virt-config.go),
the same as in HyperConverged's schema.
"""
PER_NODE: Final = "parallelOutboundMigrationsPerNode"
PER_NODE_UNSAID: Final = 2
"""The default of KubeVirt; HyperConverged writes its own default into the field."""
BANDWIDTH: Final = "bandwidthPerMigration"
COMPLETION_TIMEOUT: Final = "completionTimeoutPerGiB"
PROGRESS_TIMEOUT: Final = "progressTimeout"
POST_COPY: Final = "allowPostCopy"
_UTILITY_TIMEOUT: Final = 150
"""Seconds (pkg/virt-config/virt-config.go#MigrationUtilityVolumesTimeoutSeconds)."""

_DRAIN_TAINT: Final = "kubevirt.io/drain"
"""The default key of the taint that makes KubeVirt evacuate a node."""
MIB: Final = 2**20

_DISRUPTION_SINCE: Final = Version(1, 19)
"""The first release of HyperConverged with ``allowWorkloadDisruption``, whose default is false."""

_LABEL: Final = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
NETWORK: Final = re.compile(rf"(?:(?P<namespace>{_LABEL})/)?(?P<name>{_LABEL}(?:\.{_LABEL})*)")
LONGEST_NAME: Final = 253


def block(obj: Object) -> Field:
    """Return the block of limits of an object, which in a policy is the spec itself."""
    return obj["spec"] if kinds.of(obj) is MIGRATION_POLICY else setting(obj, Setting.MIGRATIONS)


def drain_taint(cluster: Cluster) -> str:
    """Return the key of the taint that makes KubeVirt evacuate a node."""
    found = known_or_none(kubevirt, cluster)
    said = block(found)["nodeDrainTaintKey"].text if found is not None else None
    return said or _DRAIN_TAINT


def timeouts(obj: Object) -> tuple[Field, ...]:
    """Return the fields that hold timeouts, whether set or not; a policy has only the first."""
    place = block(obj)
    if kinds.of(obj) is MIGRATION_POLICY:
        return (place[COMPLETION_TIMEOUT],)
    return (place[COMPLETION_TIMEOUT], place[PROGRESS_TIMEOUT])


def bandwidth(obj: Object) -> Fraction | None:
    """Return the bytes per second of one migration; None: not set. 0 means no limit.

    HyperConverged accepts only a string, the other kinds also an integer.

    Raises:
        ValueError: the value is not a valid quantity; the message says why.
    """
    field = block(obj)[BANDWIDTH]
    if not field.present:
        return None
    return parse_quantity(field.value, integers=kinds.of(obj) is not HCO)


def network(obj: Object) -> tuple[str, str] | None:
    """Return namespace and name of the network for migrations; None: not set, or not a valid name.

    An empty namespace means the namespace of the resource.
    """
    found = NETWORK.fullmatch(block(obj)["network"].text or "")
    if not found or len(found["name"]) > LONGEST_NAME:
        return None
    return found["namespace"] or "", found["name"]


def elsewhere(network: str, cluster: Cluster) -> str:
    """Return which namespaces have a network of the name of ``namespace/name``, which does not
    exist, in brackets; empty: none. Multus looks in the namespace of virt-handler alone.
    """
    name = network.rpartition("/")[2]
    there = sorted({each.namespace for each in cluster.known(NAD) if each.name == name})
    return f" (in {names(there)} it does)" if there else ""


_STALL: Final = "MigrationStallDetection"
_DOWNTIME: Final = "MigrationDowntimeTuning"
_CLUSTER_GATES: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("maxDowntimeMs",): (_STALL, _DOWNTIME)
}
_POLICY_GATES: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    **_CLUSTER_GATES,
    ("experimental", "downtimeTuning"): (_DOWNTIME,),
    ("experimental", "stallDetector"): (_STALL,),
}


def gated_fields(obj: Object) -> Iterator[tuple[Field, tuple[str, ...]]]:
    """Yield the fields that alpha feature gates guard, set or not,
    each with the gates of which one must be on.

    Sources:
    kubevirt/kubevirt:pkg/virt-operator/webhooks/kubevirt-update-admitter.go#validateMigrationConfiguration,
    pkg/virt-api/webhooks/validating-webhook/admitters/migrationpolicy-admitter.go.
    """
    place = block(obj)
    gated = _POLICY_GATES if kinds.of(obj) is MIGRATION_POLICY else _CLUSTER_GATES
    for path, gates in gated.items():
        yield place.at(*path), gates


def open_gates(kubevirt: Object) -> frozenset[str]:
    """Return the feature gates that a KubeVirt resource enables by name, as for alpha features."""
    gates = kubevirt.at("spec", "configuration", "developerConfiguration", "featureGates")
    return frozenset(item.text for item in gates.items() if item.text)


def utility_volumes_timeout(cluster: Cluster) -> int:
    """Return the seconds after which a migration fails that waits for a utility volume."""
    found = known_or_none(kubevirt, cluster)
    said = block(found)["utilityVolumesTimeout"].integer if found is not None else None
    return _UTILITY_TIMEOUT if said is None or said < 0 else said


def post_copy(obj: Object) -> bool:
    """Whether migrations may switch to post-copy if disruption is allowed."""
    return block(obj)[POST_COPY].boolean is True


def disruption(obj: Object) -> bool | None:
    """Return whether ``allowWorkloadDisruption`` is in effect; None: absent,
    so it follows ``allowPostCopy``.

    HyperConverged v1 has the default false. Release 1.18 serves v1 without the field and its
    default.
    """
    said = block(obj)["allowWorkloadDisruption"].boolean
    if said is None and kinds.of(obj) is HCO and obj.version == "v1" and not _lacks_disruption(obj):
        return False
    return said


def _lacks_disruption(hco: Object) -> bool:
    release = hco_release(hco)
    return release is not None and release < _DISRUPTION_SINCE
