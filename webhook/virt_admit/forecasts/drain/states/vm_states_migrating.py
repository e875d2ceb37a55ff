"""The state of a VMI that has an unfinished migration, or waits for one.

M is the migration, T its target pod. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go #handleTargetPodCreation
#findRunningMigrations #handleMigrationBackoff #handlePendingPodTimeout #handleUtilityVolumes
#handleVMBackup #processMigrationPhase.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.states import (
    vm_states_motion,
    vm_states_queue,
    vm_states_targets,
    vm_states_times,
)
from virt_admit.forecasts.drain.states.vm_states_kinds import State, VmState
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migration_timeouts, migrations, vmis, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import migration_limits, parallel_migrations, versions
from virt_admit.model.kubevirt.settings.versions import Feature, Gate
from virt_admit.model.messages import names

_UNSCHEDULABLE_TIMEOUT: Final = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds"
_PENDING_TIMEOUT: Final = "kubevirt.io/migrationPendingPodTimeoutSeconds"
_UTILITY_TIMEOUT: Final = "kubevirt.io/migrationUtilityVolumesTimeoutSeconds"
TIMEOUTS: Final = (_UNSCHEDULABLE_TIMEOUT, _PENDING_TIMEOUT, _UTILITY_TIMEOUT)
"""Annotations of migrations."""


def migrating(vmi: Object, migration: Object, own: Sequence[Object], cluster: Cluster) -> VmState:
    """Return the state of a VMI with an unfinished migration."""
    target = vm_states_motion.motion(cluster).targets.get(migration.metadata["uid"].text or "-")
    phase = migration.at("status", "phase").text or vm_states_motion.PENDING
    state = vm_states_motion.progress(vmi, migration)
    created = clock.instant(migration.created)
    to = vm_states_motion.target_node(vmi, migration, target)
    base = VmState(
        migration=migration,
        # where it is already, it needs room elsewhere
        target=to if to != vmi.at("status", "nodeName").text else "",
        since=_phase_since(migration, created),
    )
    if _is_decentralized(migration, phase):
        return replace(base, state=State.DECENTRALIZED)
    if phase == "Running" and state["completed"].boolean:
        return _ended(vmi, migration, state, base, cluster)
    if state["mode"].text == "PostCopy":
        return replace(base, state=State.POST_COPY, since=vm_states_times.stamp_of(state, "start"))
    if _is_aborting(migration, state):
        return _aborting(migration, base, cluster)
    if phase == "Running":
        return _handed_over(state, base, cluster) or _copying(vmi, state, base, cluster)
    if phase in ("Scheduled", "PreparingTarget", "TargetReady"):
        return replace(base, state=State.PREPARING)
    if target is not None:
        return _with_target(vmi, migration, target, base, cluster)
    if phase == vm_states_motion.PENDING:
        return _before_target(vmi, migration, own, replace(base, since=created), cluster)
    return replace(base, state=State.TARGET_PENDING)


def _ended(
    vmi: Object, migration: Object, state: Field, base: VmState, cluster: Cluster
) -> VmState:
    """Return the state of a VMI whose migration has ended and is still open:
    KubeVirt closes it in a moment.
    """
    end = vm_states_times.stamp_of(state, "end")
    late = vm_states_times.is_older(end, timedelta(minutes=5), cluster)
    if vm_states_motion.has_failed(state) and not late:
        stays = replace(base, target="", since=end)
        if _is_aborting(migration, state):
            return _aborting(migration, stays, cluster)
        marked = vmi.at("status", "evacuationNodeName").text == vmi.at("status", "nodeName").text
        if not marked or not migrations.is_automatic(migration):  # those of users cause no pause
            return replace(stays, state=State.STILL)
        pause = vm_states_times.pause(len(migrations.failed_in_a_row(vmi, cluster)) + 1)
        return replace(stays, state=State.BACKOFF, until=vm_states_times.after(end, pause, cluster))
    return replace(
        base,
        state=State.NOT_CLOSED,
        detail=names(filter(vmi.is_true, vmis.HOTPLUGS)),
        since=end,
        late=late,
    )


def _aborting(migration: Object, base: VmState, cluster: Cluster) -> VmState:
    asked = clock.instant(migration.metadata["deletionTimestamp"].text) or base.since
    late = vm_states_times.is_older(asked, timedelta(minutes=5), cluster)
    return replace(base, state=State.ABORTING, since=asked, late=late)


def _is_decentralized(migration: Object, phase: str) -> bool:
    """Whether the other end of a migration is another cluster, which has its target pod."""
    other = migration.at("spec", "sendTo").present or migration.at("spec", "receive").present
    return phase in ("WaitingForSync", "Synchronizing") or (other and phase != "Running")


def _is_aborting(migration: Object, state: Field) -> bool:
    if state["abortStatus"].text == "Failed":
        return False
    asked = migration.deleted or migration.is_true("migrationAbortRequested")
    return asked or state["abortStatus"].text == "Aborting"


def _phase_since(migration: Object, created: datetime | None) -> datetime | None:
    return (
        clock.instant(migrations.entered(migration, migration.at("status", "phase").text or ""))
        or created
    )


def two_pods(vmi: Object, own: Sequence[Object], cluster: Cluster) -> VmState | None:
    """Return that a VMI without a target pod has two pods;
    the guest runs in the one on the VMI's node.
    """
    living = [pod for pod in own if vm_states_motion.lives(pod)]
    if len(living) < 2:
        return None
    here = vmi.at("status", "nodeName").text
    other = next((pod for pod in living if pod.at("spec", "nodeName").text != here), living[0])
    begun = clock.instant(living[-1].created)
    # both pods live until then
    moved = vm_states_times.stamp_of(vmi.at("status", "migrationState"), "end")
    ending = clock.instant(other.metadata["deletionTimestamp"].text)
    since = ending or max(filter(None, (begun, moved)), default=None)
    return VmState(
        State.TWO_PODS,
        since=since,
        detail=other.name,
        late=vm_states_times.is_older(since, timedelta(minutes=5), cluster),
    )


def _before_target(
    vmi: Object, migration: Object, own: Sequence[Object], base: VmState, cluster: Cluster
) -> VmState:
    two = two_pods(vmi, own, cluster)
    if two is not None:
        return replace(two, migration=migration)
    waits = vm_states_times.backoff_end(vmi, migration, cluster)
    current = clock.now(cluster)
    if waits is not None and (current is None or current < waits):
        return replace(base, state=State.BACKOFF, until=vm_states_times.known_time(waits, cluster))
    for kind, state in _BLOCKED.items():
        if migration.is_true(kind):
            condition = migration.condition(kind)
            found = replace(
                base,
                state=state,
                detail=condition["message"].text or condition["reason"].text or "",
            )
            if state is State.BLOCKED_BY_VOLUME:
                wait = _timeout(
                    migration, _UTILITY_TIMEOUT, migration_limits.utility_volumes_timeout(cluster)
                )
                return replace(found, until=vm_states_times.after(base.since, wait, cluster))
            return found
    full = vm_states_queue.places(vmi, vm_states_motion.source(vmi, migration), cluster)
    if full is not None:
        queued = replace(full, state=State.QUEUED, migration=migration, since=base.since)
        return replace(queued, target=base.target)
    begun = max(base.since, waits) if base.since is not None and waits is not None else base.since
    if (
        vm_states_times.is_older(
            _place_free_since(vmi, begun, cluster), timedelta(seconds=60), cluster
        )
        and vm_states_motion.motion(cluster).pods_complete
    ):
        return replace(base, state=State.NO_TARGET)
    return replace(base, state=State.STILL)


def _place_free_since(vmi: Object, since: datetime | None, cluster: Cluster) -> datetime | None:
    """Return since when a migration that could start at ``since`` has had a free place:
    others held them before.
    """
    if since is None:
        return None
    ends = cluster.cached(_ends)
    own = ends.get(vmi.at("status", "nodeName").text or "", [])
    return max(each for each in (since, *own[:1], _full_until(ends, cluster)) if each is not None)


def _full_until(ends: Mapping[str, Sequence[datetime]], cluster: Cluster) -> datetime | None:
    """Return when all places of the cluster were taken last, at the latest; None: not known,
    or long ago.
    """
    try:
        limit = cluster.cached(parallel_migrations.limits).cluster
    except Unseen:
        return None
    free = limit - len(vm_states_motion.motion(cluster).moving)
    if free < 1:  # a limit of 0: KubeVirt starts none
        return None
    newest = heapq.nlargest(free, (end for some in ends.values() for end in some))
    return newest[-1] if len(newest) == free else None


def _ends(cluster: Cluster) -> dict[str, list[datetime]]:
    """Return when the migrations away from each node ended, the newest first."""
    found: dict[str, list[datetime]] = {}
    where = {
        (vms.namespace_of(vmi), vmi.name): vmi.at("status", "nodeName").text
        for vmi in cluster.known(VMI)
    }
    for migration in cluster.known(VMIM):
        phase = migration.at("status", "phase").text or ""
        end = clock.instant(migrations.entered(migration, phase)) if migration.ended else None
        source = migration.at("status", "migrationState", "sourceNode").text
        if source is None and phase == "Failed":  # before its hand-over, so that its VM has stayed
            source = where.get(
                (vms.namespace_of(migration), migration.at("spec", "vmiName").text or "")
            )
        if end is not None:
            found.setdefault(source or "", []).append(end)
    return {node: sorted(some, reverse=True) for node, some in found.items()}


_BLOCKED: Final = dict(
    zip(
        vm_states_queue.BLOCKING,
        (State.BLOCKED_BY_BACKUP, State.BLOCKED_BY_VOLUME, State.QUOTA),
        strict=True,
    )
)
"""The conditions of a migration that name what it waits for."""


def _with_target(
    vmi: Object, migration: Object, target: Object, base: VmState, cluster: Cluster
) -> VmState:
    created = clock.instant(target.created)
    if target.at("status", "phase").text == vm_states_motion.PENDING:
        placed = target.condition("PodScheduled")
        if placed["status"].text == "False" and placed["reason"].text == "Unschedulable":
            end = _until(migration, target, cluster, _UNSCHEDULABLE_TIMEOUT, 300)
            words = placed["message"].text or ""
            return replace(base, state=State.UNSCHEDULABLE, since=created, until=end, detail=words)
        end = _until(migration, target, cluster, _PENDING_TIMEOUT, 900)
        return replace(
            base, state=State.TARGET_PENDING, since=created, until=end, detail=target.full_name
        )
    late = vm_states_times.is_older(created, vm_states_targets.LAUNCHER_TIMEOUT, cluster)
    if not target.is_true("Ready"):
        return replace(
            base, state=State.TARGET_NOT_READY, since=created, detail=target.full_name, late=late
        )
    if next(launcher_pod.attached_claims(vmi["spec"]), None) is not None:
        attaching = vm_states_motion.motion(cluster).attachments.get(
            target.metadata["uid"].text or "-", ()
        )
        waiting = next((pod for pod in attaching if not pod.is_true("Ready")), None)
        if waiting is not None or not attaching:
            name = waiting.full_name if waiting is not None else ""
            return replace(
                base, state=State.TARGET_NOT_READY, since=created, detail=name, late=late
            )
    return replace(base, state=State.PREPARING)


def _until(
    migration: Object, target: Object, cluster: Cluster, annotation: str, default: int
) -> datetime | None:
    """Return when KubeVirt gives up a target pod that does not start; None: never, or unknown."""
    if not versions.has_release(cluster, Feature.PENDING_TIMEOUTS.since):
        return None
    limit = _timeout(migration, annotation, default)
    return vm_states_times.after(clock.instant(target.created), limit, cluster)


def _timeout(migration: Object, annotation: str, default: int) -> timedelta:
    text = migration.annotations.get(annotation, "")
    return timedelta(
        seconds=int(text) if text.isascii() and text.isdigit() and len(text) < 9 else default
    )


def _handed_over(state: Field, base: VmState, cluster: Cluster) -> VmState | None:
    """Return that the guest has been active on the target for long, which ends the copy, without
    an end of the migration (pkg/virt-handler/migration-target.go#domainIsActiveOnTarget);
    None: it is copied, or was until a moment ago.
    """
    ready = vm_states_times.stamp_of(state, "targetNodeDomainReady")
    if vm_states_times.stamp_of(state, "end") is not None or state["failed"].boolean is True:
        return None
    if not vm_states_times.is_older(ready, timedelta(minutes=5), cluster):
        return None
    return replace(base, state=State.NOT_CLOSED, since=ready, late=True)


def _copying(vmi: Object, state: Field, base: VmState, cluster: Cluster) -> VmState:
    start = vm_states_times.stamp_of(state, "start") or base.since
    found = migration_timeouts.settings(vmi, state, cluster)
    limit = migration_timeouts.seconds(vmi, found, cluster)
    paused = state["mode"].text == "Paused"
    if limit is not None and paused:
        limit *= 2
    until = (
        vm_states_times.after(start, timedelta(seconds=limit), cluster)
        if limit is not None
        else None
    )
    # then the deadline is a lower bound
    if versions.gate_is_known_on(cluster, Gate.MIGRATION_STALL_DETECTION):
        until = None
    if paused:
        return replace(base, state=State.PAUSED, since=start, until=until)
    usual = vm_states_times.expected(vmi, found, cluster)
    late = usual is not None and vm_states_times.is_older(start, 2 * usual, cluster)
    return replace(base, state=State.RUNNING, since=start, until=until, late=late)
