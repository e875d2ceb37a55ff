"""Migrations (VirtualMachineInstanceMigration), grouped by their VMI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import names

AUTOMATIC: Final = ("kubevirt.io/evacuationMigration", "kubevirt.io/workloadUpdateMigration")
"""Annotations of migrations that a drain or a workload update started.
KubeVirt repeats them forever.
"""

VOLUMES_UPDATE: Final = "kubevirt.io/volume-update-migration"
"""Label of a migration that copies volumes, which its workload updater writes
(pkg/virt-controller/watch/workload-updater/workload-updater.go#sync).
"""

READS: Final[Reads] = {
    VMIM: (
        "metadata.creationTimestamp",
        *(f"metadata.annotations.{key}" for key in AUTOMATIC),
        "metadata.labels",
        "spec.vmiName",
        "status.phase",
        "status.migrationState",
    ),
    VMI: (*CONDITIONS, "status.conditions.lastTransitionTime", "status.migratedVolumes"),
}

PENDING_TIMEOUT: Final = timedelta(minutes=15)
"""KubeVirt gives up a migration whose placed target pod has not started for so long, by default
(migration.go #handlePendingPodTimeout).
"""

RETRY_LOOP: Final = 3
"""The number of failed automatic migrations in a row that counts as a loop."""


def of_vmi(vmi: Object, cluster: Cluster) -> tuple[Object, ...]:
    """Return the known migrations of a VMI, oldest first."""
    return entry(cluster, _by_vmi, (vms.namespace_of(vmi), vmi.name)) or ()


def unfinished(vmi: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the migrations of a VMI that are neither Succeeded nor Failed.

    Raises:
        Unseen: after the known ones, if more may exist.
    """
    yield from (each for each in of_vmi(vmi, cluster) if not each.ended)
    cannot_see = cluster.cached(_unseen)
    if cannot_see:
        raise Unseen(cannot_see)


def own(vmi: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the known migrations of this VMI, not of an earlier one of its name, oldest first."""
    born = vmi.created
    yield from (migration for migration in of_vmi(vmi, cluster) if _age(migration)[0] >= born)


def failed_in_a_row(vmi: Object, cluster: Cluster) -> tuple[Object, ...]:
    """Return the known automatic migrations of a VMI that failed since the last success,
    oldest first.

    Those that were deleted, to cancel them, do not count (migration.go#handleMigrationBackoff).
    """
    failed: list[Object] = []
    for migration in own(vmi, cluster):
        phase = migration.at("status", "phase").text
        if phase == "Succeeded":
            failed.clear()
        elif phase == "Failed" and is_automatic(migration) and not migration.deleted:
            failed.append(migration)
    return tuple(failed)


def is_automatic(migration: Object) -> bool:
    """Whether a drain or a workload update created the migration."""
    return any(key in migration.annotations for key in AUTOMATIC)


def is_of_drain(migration: Object) -> bool:
    """Whether the evacuation controller created the migration."""
    return AUTOMATIC[0] in migration.annotations


def asked_by(migration: Object | None, vmi: Object) -> str:
    """Return in words who asked for a migration of a VMI that no drain has created."""
    name = f"migration {migration.name}" if migration is not None else "its migration"
    updated = migration is not None and AUTOMATIC[1] in migration.annotations
    ours = change_of(migration, vmi) or ("an update of KubeVirt" if updated else "")
    by = (
        ours
        or (manager(migration) if migration is not None else "")
        or "a person or another program"
    )
    return f"{by} asked for {name}"


def change_of(migration: Object | None, vmi: Object) -> str:
    """Return the change of a VM for which KubeVirt migrates it; empty: an update of KubeVirt,
    or none.

    Its workload updater creates these migrations as well
    (pkg/virt-controller/watch/workload-updater/workload-updater.go#isHotplugInProgress
    #isVolumesUpdateInProgress).
    """
    if migration is not None and VOLUMES_UPDATE in migration.labels:  # also once it has ended
        return _CHANGES["VolumesChange"]
    if migration is None or AUTOMATIC[1] not in migration.annotations:
        return ""
    if migration.ended:  # most conditions are about what is under way
        return _CHANGES["VolumesChange"] if _is_of_volumes(migration, vmi) else ""
    if vmi.is_true("HotVCPUChange") and vmi.is_true("HotMemoryChange"):
        return "a change of its CPUs and memory"
    return next((words for kind, words in _CHANGES.items() if vmi.is_true(kind)), "")


def _is_of_volumes(migration: Object, vmi: Object) -> bool:
    """Return whether a migration that has ended was made after the volumes of a VMI were changed.

    Older releases give it no label, and this condition is True until the copy succeeds or is given
    up (pkg/virt-controller/watch/vmi/storage.go#syncVolumesUpdate).
    """
    changed = vmi.condition("VolumesChange")
    since = clock.instant(changed["lastTransitionTime"].text)
    made = clock.instant(migration.created)
    return changed["status"].text == "True" and bool(since and made and made >= since)


def is_changed(vmi: Object) -> bool:
    """Return whether a change of a running VM is pending that only a migration brings."""
    return any(vmi.is_true(kind) for kind in _CHANGES)


_CHANGES: Final = {
    "VolumesChange": "a change of its volumes",
    "HotVCPUChange": "a change of its CPUs",
    "HotMemoryChange": "a change of its memory",
    "MigrationRequired": "a change of the VM",
}


def manager(migration: Object) -> str:
    """Return the program that made a migration, by its label ``…/managed-by``; empty: none."""
    found = (
        value for key, value in sorted(migration.labels.items()) if key.endswith("/managed-by")
    )
    value = next(filter(None, found), "")
    return f"{value} (label managed-by)" if value else ""


class VolumeCopy(NamedTuple):
    """A volume that KubeVirt copies to another claim while it migrates the VM."""

    volume: str
    source: str
    """The claim on which the guest runs until the migration has ended."""
    destination: str


def copies(vmi: Object) -> tuple[VolumeCopy, ...]:
    """Return the volumes of a VMI that are copied to other claims, which its spec names already.

    Source: kubevirt/user-guide:docs/storage/volume_migration.md.
    """
    if not vmi.is_true("VolumesChange"):
        return ()
    moved = (
        (
            each["volumeName"].text,
            each.at("sourcePVCInfo", "claimName").text,
            each.at("destinationPVCInfo", "claimName").text,
        )
        for each in vmi.at("status", "migratedVolumes").items()
    )
    return tuple(VolumeCopy(*each) for each in moved if all(each))  # type: ignore[arg-type]


def copy_words(vmi: Object) -> str:
    """Return which claims are copied, as ``claim a to b``; empty: none is."""
    found = copies(vmi)
    if found:
        return (
            f"claim{'s' * (len(found) > 1)} "
            f"{names(f'{each.source} to {each.destination}' for each in found)}"
        )
    return ""


def entered(migration: Object, phase: str) -> str | None:
    """Return when a migration entered a phase (RFC 3339); None: not known."""
    for item in migration.at("status", "phaseTransitionTimestamps").items():
        if item["phase"].text == phase:
            return item["phaseTransitionTimestamp"].text
    return None


def _by_vmi(cluster: Cluster) -> Mapping[tuple[str, str], tuple[Object, ...]]:
    groups: dict[tuple[str, str], list[Object]] = {}
    for migration in cluster.known(VMIM):
        name = migration.at("spec", "vmiName").text or ""
        groups.setdefault((vms.namespace_of(migration), name), []).append(migration)
    return {key: tuple(sorted(group, key=_age)) for key, group in groups.items()}


def _age(migration: Object) -> tuple[str, str]:
    """Return a sort key, oldest first; RFC 3339 in UTC sorts as text."""
    return migration.created, migration.name


def _unseen(cluster: Cluster) -> str:
    try:
        for _ in cluster.list(VMIM):
            pass
    except Unseen as unseen:
        return unseen.what
    return ""
