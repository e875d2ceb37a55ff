"""The last migrations of a VM: who asked for them, where they went, how long each phase took,
and why they failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import FINAL_PHASES, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migration_failures, migration_timeouts, migrations
from virt_admit.model.kubevirt.instances.migration_failures import Failure

_JOB: Final = "kubevirt.io/migrationJobUID"
"""The label of target pods (staging/src/kubevirt.io/api/core/v1/types.go#MigrationJobLabel)."""
READS: Final[Reads] = union(
    migrations.READS,
    migration_timeouts.READS,
    {
        POD: (f"metadata.labels.{_JOB}", "spec.nodeName", "status.reason", "status.message"),
        VMI: ("status.nodeName",),
        VMIM: ("metadata.uid", "status.phaseTransitionTimestamps"),
    },
)

_MOST: Final = 5
"""KubeVirt keeps so many finished ones (migration.go#garbageCollectFinalizedMigrations)."""
_ASKED_BY: Final = dict(zip(migrations.AUTOMATIC, ("drain", "update of KubeVirt"), strict=True))
_PENDING: Final = "Pending"


@dataclass(frozen=True, slots=True)
class PastMigration:
    """One migration of a VM, which may still run."""

    name: str
    phase: str
    asked_by: str
    """``drain``, ``update of KubeVirt``, a change of the VM, a label in words, or ``other``."""
    created: datetime | None
    source: str
    """Empty: not known."""
    target: str
    """Empty: not known, or no target was found."""
    phases: tuple[tuple[str, int], ...]
    """The phases with the seconds that each took, the last one of a running migration until now."""
    failure: Failure | None


def history(obj: Object, cluster: Cluster) -> tuple[PastMigration, ...]:
    """Return the last known migrations of a VMI, or of a VM that does not run, the newest first."""
    newest = list(migrations.own(obj, cluster))[::-1][:_MOST]
    return tuple(_past(obj, migration, cluster) for migration in newest)


def _past(obj: Object, migration: Object, cluster: Cluster) -> PastMigration:
    state = migration.at("status", "migrationState")
    current = obj.at("status", "migrationState")  # until it ends, only the VMI has its state
    if not state.present and current["migrationUid"].text == migration.metadata["uid"].text:
        state = current
    runs = not migration.ended
    pod = _target_pod(migration, cluster)
    assigned = pod.at("spec", "nodeName").text or "" if pod is not None else ""
    return PastMigration(
        name=migration.name,
        phase=migration.at("status", "phase").text or _PENDING,
        asked_by=_asked_by(migration, obj),
        created=clock.instant(migration.created),
        source=state["sourceNode"].text
        or (obj.at("status", "nodeName").text or "" if runs else ""),
        target=state["targetNode"].text or assigned,
        phases=tuple(_phases(migration, cluster)),
        failure=migration_failures.of_migration(obj, migration, cluster, pod),
    )


def _target_pod(migration: Object, cluster: Cluster) -> Object | None:
    """Return the target pod of a migration, which has no state before that pod runs;
    None: it is not known, or has none.
    """
    uid = migration.metadata["uid"].text
    for pod in cluster.known(POD, migration.namespace) if uid else ():
        if pod.labels.get(_JOB) == uid:
            return pod
    return None


def _asked_by(migration: Object, vmi: Object) -> str:
    automatic = next((word for key, word in _ASKED_BY.items() if key in migration.annotations), "")
    changed = migrations.change_of(migration, vmi)
    return changed or automatic or migrations.manager(migration) or "other"


def _phases(migration: Object, cluster: Cluster) -> Iterator[tuple[str, int]]:
    """Yield each phase with its seconds; a phase whose end is not known is left out."""
    stamps = migration.at("status", "phaseTransitionTimestamps").items()
    entered = [
        (item["phase"].text or "", clock.instant(item["phaseTransitionTimestamp"].text))
        for item in stamps
    ]
    known = sorted(
        ((time, phase) for phase, time in entered if time is not None), key=lambda each: each[0]
    )
    created = clock.instant(migration.created)
    if created is not None and known and all(phase != _PENDING for _, phase in known):
        known.insert(0, (created, _PENDING))
    for (start, phase), (end, _) in pairwise(known):
        yield phase, max(int((end - start).total_seconds()), 0)
    current = clock.now(cluster) if not migration.ended else None
    if known and current is not None and known[-1][1] not in FINAL_PHASES:
        yield known[-1][1], max(int((current - known[-1][0]).total_seconds()), 0)
