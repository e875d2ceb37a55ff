"""When KubeVirt ends a migration by itself: its settings for one VMI,
and the seconds until its deadline.

Sources:
kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#handleLegacyConvergence;
pkg/virt-launcher/virtwrap/manager.go#getVMIMigrationDataSize;
pkg/util/migrations/migrationpolicies.go#MatchPolicy.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY, NAMESPACE, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import (
    configuration,
    migration_limits,
    migration_policies,
    versions,
)
from virt_admit.model.kubevirt.settings.configuration import known_or_none

READS: Final[Reads] = {
    KUBEVIRT: (),
    HCO: (),
    MIGRATION_POLICY: (),
    NAMESPACE: ("metadata.labels",),
    VMI: ("metadata.labels", "spec.domain", "status.migrationState", "status.migratedVolumes"),
}

GB: Final = 10**9
"""The unit of ``completionTimeoutPerGiB``: KubeVirt rounds the size up to it
(Quantity.ScaledValue(Giga)).
"""
SLOWEST: Final = 2**20
"""Bytes per second: KubeVirt rounds a lower limit up
(virtwrap/converter/vcpu/vcpu.go#QuantityToMebiByte).
"""
_PROGRESS: Final = 150
"""Seconds (virt-config.go#MigrationProgressTimeout)."""


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """What ends a migration of one VMI."""

    completion: int
    """Seconds for each GB; 0: no deadline."""
    progress: int
    """Seconds without progress; 0: switched off."""
    post_copy: bool
    disruption: bool
    """Whether KubeVirt may pause the guest at the deadline."""
    bandwidth: float
    """Bytes per second; 0: not limited, or unknown."""
    auto_converge: bool = False
    """Whether KubeVirt slows the guest down until its memory can be copied."""

    @property
    def ends_at_deadline(self) -> bool:
        """Whether a migration completes after its deadline,
        instead of being cancelled and repeated.
        """
        return self.post_copy or self.disruption


def settings(vmi: Object, state: Field, cluster: Cluster) -> MigrationSettings | None:
    """Return the settings of a migration; None: they cannot be determined.

    Args:
        vmi: the VMI.
        state: the ``migrationState`` of the migration, which has the settings that it uses; may be
            absent.
        cluster: what applies to a migration that has not started.
    """
    used = state["migrationConfiguration"]
    if used.is_map:
        return _read([used], versions.kubevirt_completion_timeout(cluster))
    for read, default in (
        (configuration.kubevirt, versions.kubevirt_completion_timeout),
        (configuration.hyperconverged, versions.hco_completion_timeout),
    ):
        found = known_or_none(read, cluster)
        if found is not None:
            selecting = policy(vmi, cluster)
            own = [selecting["spec"]] if selecting is not None else []
            return _read([*own, migration_limits.block(found)], default(cluster))
    return None


def may_post_copy(vmi: Object, cluster: Cluster) -> bool:
    """Whether the next migration of a VMI may switch to post-copy.

    True also if that cannot be determined.
    """
    found = settings(vmi, vmi["-"], cluster)
    return found is None or found.post_copy


def _read(blocks: list[Field], completion: int) -> MigrationSettings:
    """Return the settings of these blocks, of which the first that has a field counts."""

    def first(key: str) -> Field:
        return next((block[key] for block in blocks if block[key].present), Field(None))

    said = first(migration_limits.COMPLETION_TIMEOUT).integer
    progress = first(migration_limits.PROGRESS_TIMEOUT).integer
    post_copy = first("allowPostCopy").boolean is True
    disruption = first("allowWorkloadDisruption").boolean
    return MigrationSettings(
        completion if said is None or said < 0 else said,
        _PROGRESS if progress is None or progress < 0 else progress,
        post_copy,
        post_copy if disruption is None else disruption,
        float(_quantity(first(migration_limits.BANDWIDTH))),
        first("allowAutoConverge").boolean is True,
    )


def policy(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the known policy that selects the VMI by the most labels;
    of equal ones the first by name.
    """
    try:
        namespace = cluster.get(NAMESPACE, "", vms.namespace_of(vmi))
    except Unseen:
        namespace = None
    labels = namespace.labels if namespace is not None else {}
    best: tuple[int, str, Object] | None = None
    for policy in cluster.known(MIGRATION_POLICY):
        wanted = migration_policies.labels(policy)
        if wanted.namespace.items() <= labels.items() and wanted.vmi.items() <= vmi.labels.items():
            rank = (-len(wanted.namespace) - len(wanted.vmi), policy.name, policy)
            best = rank if best is None or rank[:2] < best[:2] else best
    return best[2] if best is not None else None


def size(vmi: Object) -> int:
    """Return the bytes that a migration copies: the memory of the guest,
    and volumes that move with it.
    """
    domain = vmi.at("spec", "domain")
    guest = domain.at("memory", "guest")
    memory = guest if guest.present else domain.at("resources", "requests", "memory")
    moved = (
        item.at("destinationPVCInfo", "requests", "storage")
        for item in vmi.at("status", "migratedVolumes").items()
    )
    return int(sum((_quantity(each) for each in (memory, *moved)), Fraction(0)))


def moves_volumes(vmi: Object) -> bool:
    """Whether a migration of a VMI copies volumes to other claims."""
    return vmi.at("status", "migratedVolumes", 0).present


def seconds(vmi: Object, found: MigrationSettings | None) -> int | None:
    """Return the seconds until the deadline of a migration; None: it has none,
    or that cannot be determined.
    """
    if found is None or not found.completion:
        return None
    units = -(-size(vmi) // GB)
    return min(found.completion * units, _LONGEST) if units else None


_LONGEST: Final = 10**10
"""Seconds, 317 years: what a deadline of huge numbers means,
so that a time after it still exists.
"""


def _quantity(field: Field) -> Fraction:
    try:
        return parse_quantity(field.value, integers=True) if field.present else Fraction(0)
    except ValueError:
        return Fraction(0)
