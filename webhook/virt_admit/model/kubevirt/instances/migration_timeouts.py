"""When KubeVirt ends a migration by itself: its settings for one VMI,
and the seconds until its deadline.

Sources:
kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#handleLegacyConvergence;
pkg/virt-launcher/virtwrap/manager.go#getVMIMigrationDataSize;
pkg/storage/types/volume.go#GetTotalSizeMigratedVolumes (kubevirt/kubevirt#14367, #16833);
pkg/util/migrations/migrationpolicies.go#MatchPolicy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY, NAMESPACE, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.kubevirt.settings import (
    configuration,
    migration_limits,
    migration_policies,
    versions,
)
from virt_admit.model.kubevirt.settings.configuration import known_or_none
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    migrations.READS,
    {
        KUBEVIRT: (),
        HCO: (),
        MIGRATION_POLICY: (),
        NAMESPACE: ("metadata.labels",),
        VMI: ("metadata.labels", "spec.domain", "status.migrationState", "status.migratedVolumes"),
    },
)

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
        _PROGRESS if progress is None or progress < 0 else clock.bounded(progress),
        post_copy,
        post_copy if disruption is None else disruption,
        float(_quantity(first(migration_limits.BANDWIDTH))),
        first("allowAutoConverge").boolean is True,
    )


def policy(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the known policy that selects the VMI by the most labels;
    of equal ones the first by name.
    """
    namespace = find(cluster, NAMESPACE, "", vms.namespace_of(vmi))
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
    return _memory(vmi) + _moved(vmi)


def _memory(vmi: Object) -> int:
    domain = vmi.at("spec", "domain")
    guest = domain.at("memory", "guest")
    return int(_quantity(guest if guest.present else domain.at("resources", "requests", "memory")))


def _moved(vmi: Object) -> int:
    """Return the bytes of the disks that are copied, by the claims that they leave: a larger
    destination gives KubeVirt no more time (pkg/storage/types/pvc.go#GetDiskCapacity).
    """
    moved = vmi.at("status", "migratedVolumes").items()
    sources = (each["sourcePVCInfo"] for each in moved)
    sizes = (min(_storage(each, "capacity"), _storage(each, "requests")) for each in sources)
    return int(sum(sizes, 0))


def _storage(claim: Field, part: str) -> Fraction:
    return _quantity(claim.at(part, "storage"))


def counts_disks(cluster: Cluster) -> bool:
    """Whether this release counts disks that are copied for the time that a migration may take.

    Before, it looked for their former claims where it had written the new ones already.
    """
    return versions.has_release(cluster, versions.Feature.COPIED_DISKS_COUNT.since)


def sufficient(vmi: Object, found: MigrationSettings) -> int:
    """Return the seconds for each GB of memory that allow a migration as long as a release that
    counts its disks; 0: not known.
    """
    own, whole = _units(_memory(vmi)), _units(size(vmi))
    return -(-found.completion * whole // own) if own and whole > own else 0


def moves_volumes(vmi: Object) -> bool:
    """Whether a migration of a VMI copies volumes to other claims."""
    return vmi.at("status", "migratedVolumes", 0).present


def seconds(vmi: Object, found: MigrationSettings | None, cluster: Cluster) -> int | None:
    """Return the seconds until the deadline of a migration; None: it has none,
    or that cannot be determined.

    The time after which KubeVirt ended such a migration before counts more than a calculation.
    """
    if found is None or not found.completion:
        return None
    if before := _observed(vmi, found, cluster):
        return before
    units = _units(size(vmi) if counts_disks(cluster) else _memory(vmi))
    return min(found.completion * units, _LONGEST) if units else None


def _units(amount: int) -> int:
    return -(-amount // GB)


def said(reason: str) -> timedelta | None:
    """Return the time after which KubeVirt ended a migration, as it says up to 1.8; None:
    it does not.
    """
    found = _NOT_COMPLETED.search(reason)
    return timedelta(seconds=int(found[1])) if found is not None else None


_NOT_COMPLETED: Final = re.compile(r"Live migration is not completed after (\d{1,9}) seconds")


def _observed(vmi: Object, found: MigrationSettings, cluster: Cluster) -> int:
    """Return the seconds after which KubeVirt ended the last migration of a VMI with the same
    setting that copied as much; 0: none is known.

    It shows whether this release counts copied disks. One from before the VM got more memory says
    nothing.
    """
    if found.ends_at_deadline:
        return 0
    possible = {found.completion * _units(amount) for amount in (_memory(vmi), size(vmi))}
    current = vmi.at("status", "migrationState")
    for migration in reversed(tuple(migrations.own(vmi, cluster))):
        is_current = current["migrationUid"].text == (migration.metadata["uid"].text or "-")
        state = current if is_current else migration.at("status", "migrationState")
        used = state["migrationConfiguration"][migration_limits.COMPLETION_TIMEOUT].integer
        copied = migrations.VOLUMES_UPDATE in migration.labels
        limit = said(state["failureReason"].text or "")
        length = int(limit.total_seconds()) if limit is not None else 0
        same = used == found.completion and copied is moves_volumes(vmi)
        if same and length in possible:
            return length
    return 0


_LONGEST: Final = 10**10
"""Seconds, 317 years: what a deadline of huge numbers means,
so that a time after it still exists.
"""


def _quantity(field: Field) -> Fraction:
    try:
        return parse_quantity(field.value, integers=True) if field.present else Fraction(0)
    except ValueError:
        return Fraction(0)
