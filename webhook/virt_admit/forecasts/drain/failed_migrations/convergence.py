"""Why a copy of memory does not end: what slows the guest down is not allowed, and where it is set.

KubeVirt ends a copy that made no progress for ``progressTimeout``, and begins post-copy only at the
deadline (completionTimeoutPerGiB for each GB). Where the first comes earlier, the second alone does
not help, unless the gate MigrationStallDetection is on. Sources: kubevirt/kubevirt:pkg/
virt-launcher/virtwrap/live-migration-source.go#processInflightMigration (1.0 to 1.8),
#handleLegacyConvergence (since 1.9), #handleStallDetection.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import (
    migration_failures,
    migration_timeouts,
    migrations,
    vms,
)
from virt_admit.model.kubevirt.instances.migration_timeouts import MigrationSettings
from virt_admit.model.kubevirt.settings import configuration, migration_limits, versions
from virt_admit.model.kubevirt.settings.versions import Gate

READS: Final[Reads] = union(
    migration_timeouts.READS,
    migrations.READS,
    {VMIM: ("spec.vmiName", "status.phase", "status.migrationState")},
)
_HELPERS: Final = ("allowAutoConverge", migration_limits.POST_COPY)
_DAY: Final = timedelta(days=1)


def cause(vmi: Object, settings: MigrationSettings | None, cluster: Cluster) -> str:
    """Return why migrations of a VMI made no progress, and what is not allowed that would end them,
    after a colon.
    """
    other = _moved(vmi, cluster)
    stalls = "" if other else ", or the network to the targets stalls"
    proof = f", and not the network: {other}" if other else ""
    off = _off(vmi, settings, cluster)
    return f": the guest writes its memory as fast as it is copied{stalls}{proof}{off}"


class _Moved(NamedTuple):
    ended: datetime
    words: str


def _moved(vmi: Object, cluster: Cluster) -> str:
    """Return which other VM left the same node within a day of the failures, and how fast; empty:
    none is known.
    """
    own = [end for each in migrations.own(vmi, cluster) if (end := _times(each)[1]) is not None]
    found = [moved for each in cluster.known(VMIM) if (moved := _success(each, vmi)) is not None]
    near = [each for each in found if own and abs(max(own) - each.ended) <= _DAY]
    return max(near).words if near else ""


def _success(migration: Object, vmi: Object) -> _Moved | None:
    """Return a migration of another VMI that succeeded from the node of this one, with its length
    in words.
    """
    state, (begin, end) = migration.at("status", "migrationState"), _times(migration)
    here, target = state["sourceNode"].text, state["targetNode"].text
    name = f"{migration.namespace}/{migration.at('spec', 'vmiName').text}"
    if (
        migration.at("status", "phase").text != "Succeeded"
        or here != vmi.at("status", "nodeName").text
        or name == f"{vms.namespace_of(vmi)}/{vmi.name}"
        or begin is None
        or end is None
        or end < begin
    ):
        return None
    return _Moved(end, f"{name} went from {here} to {target} in {duration(end - begin)}")


def _times(migration: Object) -> tuple[datetime | None, datetime | None]:
    state = migration.at("status", "migrationState")
    return clock.instant(state["startTimestamp"].text), clock.instant(state["endTimestamp"].text)


def _off(vmi: Object, settings: MigrationSettings | None, cluster: Cluster) -> str:
    """Return which helpers are off, with the object and the field that say so; empty: none is."""
    if settings is None:
        return ""
    on = (settings.auto_converge, settings.post_copy)
    off = [key for key, is_on in zip(_HELPERS, on, strict=True) if not is_on]
    if not off:
        return ""
    which = f"neither {off[0]} nor {off[1]} is on" if len(off) > 1 else f"{off[0]} is off"
    return f"; {which}{place(vmi, cluster)}"


def place(vmi: Object, cluster: Cluster) -> str:
    """Return the object and the field with the limits of a VMI's migrations, in brackets."""
    policy = migration_timeouts.policy(vmi, cluster)
    if policy is not None and any(policy["spec"][key].present for key in _HELPERS):
        return f" (MigrationPolicy {policy.name}, spec)"
    for read in (configuration.hyperconverged, configuration.kubevirt):
        found = configuration.known_or_none(read, cluster)
        if found is not None:
            return f" ({found.kind} {found.full_name}, {migration_limits.block(found).path})"
    return ""


def before_deadline(vmi: Object, settings: MigrationSettings | None, cluster: Cluster) -> str:
    """Return with which deadline post-copy begins before a migration is ended for no progress, as a
    further setting; empty: any does, or that is not known.
    """
    failed = migration_failures.in_a_row(vmi, cluster)
    ended = [
        each.lasted.total_seconds()
        for each in failed
        if migration_failures.is_without_progress(each) and each.lasted is not None
    ]
    deadline = migration_timeouts.seconds(vmi, settings, cluster)
    if not ended or deadline is None or settings is None or min(ended) >= deadline:
        return ""
    if versions.gate_is_known_on(cluster, Gate.MIGRATION_STALL_DETECTION):
        return ""
    most = int(min(ended) * settings.completion / deadline)
    if not most:
        return ""
    return (
        f" and {migration_limits.COMPLETION_TIMEOUT} {most} or less, as post-copy begins only at "
        f"that deadline, now after {duration(timedelta(seconds=deadline))}"
    )
