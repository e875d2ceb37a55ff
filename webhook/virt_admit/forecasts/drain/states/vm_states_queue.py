"""The queue of migrations: which VMs hold the places, which wait for one,
and in which order they come.

Priorities count only with the gate MigrationPriorityQueue; migrations of equal priority go in no
order. Without the gate the evacuation controller creates migrations only for VMs that have a place,
so that marked VMs wait too. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#handleTargetPodCreation
#findRunningMigrations #getRequeueDelayForPriority;
:pkg/util/migrations/migrations.go#PriorityFromMigration;
:pkg/virt-controller/watch/drain/evacuation/evacuation.go#vmisToMigrate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.forecasts.drain.states.vm_states_kinds import VmState
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migrations, vmis, vms
from virt_admit.model.kubevirt.settings import parallel_migrations, versions
from virt_admit.model.kubevirt.settings.versions import Gate

_PRIORITIES: Final = {"system-critical": 100, "user-triggered": 50, "system-maintenance": 20}
"""A migration that says none comes last, unless a drain or an update of KubeVirt created it."""
_OF_A_DRAIN: Final = 100

BLOCKING: Final = (
    "migrationBlockedByBackup",
    "migrationBlockedByUtilityVolumes",
    "migrationRejectedByResourceQuota",
)
"""Conditions of a migration that waits for something else than a place."""


class _Waiting(NamedTuple):
    """A VM that waits for a place. The order of the fields is the order of the queue."""

    rank: int
    """The negative priority."""
    created: str
    key: tuple[str, str]
    """Namespace and name."""


def before_migrations(cluster: Cluster) -> bool:
    """Whether the evacuation controller creates migrations only for VMs that have a place."""
    return not versions.gate_may_be_on(cluster, Gate.MIGRATION_PRIORITY_QUEUE)


def places(vmi: Object, node: str, cluster: Cluster) -> VmState | None:
    """Return who holds the places that a VM of a node waits for, and its place in the queue.

    None: a place is free, or that is not known.
    """
    try:
        limits = cluster.cached(parallel_migrations.limits)
    except Unseen:
        return None
    motion = vm_states_motion.motion(cluster)
    waiting = cluster.cached(_waiting)
    here = motion.running.get(node, ())
    if 0 < limits.node <= len(here):
        words = f"{node} may send {limits.node} at a time"
        return _placed(vmi, waiting.get(node, ()), VmState(holders=here, detail=words))
    if 0 < limits.cluster <= len(motion.moving):
        words = f"all nodes together may send {limits.cluster} at a time"
        every = tuple(sorted(each for some in waiting.values() for each in some))
        return _placed(vmi, every, VmState(holders=motion.moving, detail=words))
    return None


def _placed(vmi: Object, waiting: tuple[_Waiting, ...], found: VmState) -> VmState:
    own = next((each for each in waiting if each.key == (vms.namespace_of(vmi), vmi.name)), None)
    if own is None:  # a VM at rest that is asked about: it would come last
        last = len(waiting) + 1
        return replace(found, place=last, last=last, waiting=last)
    before = sum(each.rank < own.rank for each in waiting)
    equal = sum(each.rank == own.rank for each in waiting)
    return replace(found, place=before + 1, last=before + equal, waiting=len(waiting))


def _waiting(cluster: Cluster) -> Mapping[str, tuple[_Waiting, ...]]:
    """Return the VMs that wait for a place, by their node, in the order of the queue."""
    ordered = versions.gate_may_be_on(cluster, Gate.MIGRATION_PRIORITY_QUEUE)
    found: dict[str, dict[tuple[str, str], _Waiting]] = {}
    for vmi, migration in _pending(cluster):
        node = vm_states_motion.source(vmi, migration) if migration is not None else _node(vmi)
        key = vms.namespace_of(vmi), vmi.name
        rank = -_priority(migration) if ordered else 0
        found.setdefault(node, {})[key] = _Waiting(rank, _asked(vmi, migration), key)
    return {node: tuple(sorted(some.values())) for node, some in found.items()}


def _pending(cluster: Cluster) -> Iterator[tuple[Object, Object | None]]:
    """Yield the VMIs that wait for a place, with their migration if they have one already."""
    groups = vm_states_motion.motion(cluster)
    moving: set[tuple[str, str]] = set()
    known = {(vms.namespace_of(vmi), vmi.name): vmi for vmi in cluster.known(VMI)}
    for migration in cluster.known(VMIM):
        phase = migration.at("status", "phase").text or vm_states_motion.PENDING
        key = vms.namespace_of(migration), migration.at("spec", "vmiName").text or ""
        vmi = known.get(key)
        if vmi is None or migration.ended:
            continue
        moving.add(key)
        started = (migration.metadata["uid"].text or "-") in groups.targets
        if (
            phase == vm_states_motion.PENDING
            and not started
            and not _waits_for_else(vmi, migration, cluster)
        ):
            yield vmi, migration
    if before_migrations(cluster):
        yield from (
            (vmi, None) for key, vmi in known.items() if key not in moving and is_marked(vmi)
        )


def is_marked(vmi: Object) -> bool:
    """Whether the eviction of a running VMI from its node was asked for."""
    return (
        vmis.running(vmi)
        and not vmi.deleted
        and vmi.at("status", "evacuationNodeName").text == (_node(vmi) or "-")
    )


def _waits_for_else(vmi: Object, migration: Object, cluster: Cluster) -> bool:
    """Whether a migration without a target pod waits for something else than a place."""
    until = vm_states_times.backoff_end(vmi, migration, cluster)
    current = clock.now(cluster)
    return (
        (until is not None and (current is None or current < until))
        or migration.deleted
        or any(migration.is_true(kind) for kind in BLOCKING)
    )


def _priority(migration: Object | None) -> int:
    said = migration.at("spec", "priority").text if migration is not None else None
    if said is not None:
        return _PRIORITIES.get(said, 0)
    return _OF_A_DRAIN if migration is None or migrations.is_automatic(migration) else 0


def _asked(vmi: Object, migration: Object | None) -> str:
    """Return since when a VM waits (RFC 3339); empty: not known."""
    if migration is None:
        return vmi.condition("EvictionRequested")["lastTransitionTime"].text or ""
    return migration.created


def _node(vmi: Object) -> str:
    return vmi.at("status", "nodeName").text or ""
