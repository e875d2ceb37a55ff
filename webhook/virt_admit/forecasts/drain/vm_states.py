"""What each VM of a node is doing now: waiting for a place, copying its memory, arriving, or nothing.

The first row of ``State`` that fits wins. Names: N is the node, M the newest unfinished migration of the VMI, T the
target pod of M, S the newest pod of the VMI on N. Sources: kubevirt/kubevirt:pkg/virt-controller/watch/migration/
migration.go#handleTargetPodCreation #findRunningMigrations #handleMigrationBackoff #handlePendingPodTimeout
#handleUtilityVolumes #handleVMBackup #processMigrationPhase; :pkg/virt-controller/watch/drain/evacuation/evacuation.go
#vmisToMigrate; :pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go#admitLauncherPod.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand, migration_failures, migration_timeouts, migrations, vmis, vms
from virt_admit.model.kubevirt.instances.migration_failures import Failure
from virt_admit.model.kubevirt.instances.migration_timeouts import MigrationSettings
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import configuration, migration_limits, parallel_migrations, versions
from virt_admit.model.kubevirt.settings.versions import Gate
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import FINISHED

JOB: Final = "kubevirt.io/migrationJobUID"
"""Label of a target pod: the uid of its migration."""
_UNSCHEDULABLE_TIMEOUT: Final = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds"
_PENDING_TIMEOUT: Final = "kubevirt.io/migrationPendingPodTimeoutSeconds"
_UTILITY_TIMEOUT: Final = "kubevirt.io/migrationUtilityVolumesTimeoutSeconds"
_TAINT: Final = "kubevirt.io/drain"
"""The default of ``migrations.nodeDrainTaintKey`` (virt-config.go#NodeDrainTaintDefaultKey)."""

READS: Final = union(
    candidates.READS,
    clock.READS,
    migrations.READS,
    migration_timeouts.READS,
    expand.STRATEGY_READS,
    {
        VMI: ("metadata.uid", "metadata.creationTimestamp", "status"),
        VMIM: (
            "metadata.uid",
            *(f"metadata.annotations.{key}" for key in (_UNSCHEDULABLE_TIMEOUT, _PENDING_TIMEOUT, _UTILITY_TIMEOUT)),
            "spec",
            "status.conditions",
            "status.phaseTransitionTimestamps",
        ),
        POD: (
            "metadata.uid",
            "metadata.creationTimestamp",
            "status.conditions.reason",
            "status.conditions.message",
            "status.conditions.lastTransitionTime",
            "status.conditions.type",
            "status.conditions.status",
        ),
    },
)
"""The fields that decide on states."""


class State(enum.StrEnum):
    """What a VM on a draining node is doing now."""

    GONE = "gone"
    ENDED = "ended"
    STOPPING = "stopping"
    STARTING = "starting"
    REFUSED = "refused"
    EXTERNAL = "external"
    STALE_MARK = "stale-mark"
    MARKED = "marked"
    TWO_PODS = "two-pods"
    BACKOFF = "backoff"
    BLOCKED_BY_BACKUP = "blocked-by-backup"
    BLOCKED_BY_VOLUME = "blocked-by-volume"
    QUOTA = "quota"
    QUEUED = "queued"
    NO_TARGET = "no-target"
    UNSCHEDULABLE = "unschedulable"
    TARGET_PENDING = "target-pending"
    TARGET_NOT_READY = "target-not-ready"
    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    POST_COPY = "post-copy"
    ABORTING = "aborting"
    ARRIVED = "arrived"
    NOT_CLOSED = "not-closed"
    DECENTRALIZED = "decentralized"
    STILL = "still"


class Flag(enum.StrEnum):
    """What is true besides the state."""

    LEFTOVER = "leftover"
    TAINTED = "tainted"
    FOREIGN = "foreign"
    ARRIVING = "arriving"


PLACED: Final = frozenset(
    (
        State.TARGET_PENDING,
        State.TARGET_NOT_READY,
        State.PREPARING,
        State.RUNNING,
        State.PAUSED,
        State.POST_COPY,
        State.ARRIVED,
        State.NOT_CLOSED,
    )
)
"""States in which another node has room for the VM already: its target pod holds it."""


@dataclass(frozen=True, slots=True)
class VmState:
    """The state of one VM on one node."""

    state: State = State.STILL
    flags: tuple[Flag, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    """When KubeVirt takes its next step by itself. None: not known, or without limit."""
    attempts: int = 0
    """Failed migrations since the last success."""
    failure: Failure | None = None
    """The last of them."""
    source: str = ""
    """The node from which an arriving VM comes."""
    target: str = ""
    """The node to which it migrates."""
    detail: str = ""
    """Words of KubeVirt or kube-scheduler, or the name of what it waits for."""
    migration: Object | None = None
    late: bool = False
    """Whether the state lasts much longer than it should."""
    holders: tuple[tuple[str, str], ...] = ()
    """Namespace and name of the VMs whose migrations hold the places that it waits for."""
    ahead: int = 0
    """The number of other VMs that wait for the same places."""

    @property
    def placed(self) -> bool:
        """Whether another node has room for the VM already."""
        return self.state in PLACED and bool(self.target)


AT_REST: Final = VmState()
STARTING_PHASES: Final = frozenset(("Pending", "Scheduling", "Scheduled", "WaitingForSync"))
_COARSE: Final = timedelta(minutes=5)
"""Without the time of the listing, nothing younger is late: a heartbeat is up to five minutes old."""


# --- one pass over pods and migrations -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Motion:
    """Pods and migrations of a cluster, grouped."""

    pods: Mapping[tuple[str, str], tuple[Object, ...]]
    """Launcher pods by namespace and name of their VMI, oldest first, also those that have ended."""
    targets: Mapping[str, Object]
    """The newest target pod of each migration, by its uid."""
    attachments: Mapping[str, tuple[Object, ...]]
    """Pods that attach volumes, by the uid of the launcher pod that owns them."""
    running: Mapping[str, tuple[tuple[str, str], ...]]
    """The VMs whose migrations hold a place, by their node."""
    waiting: Mapping[str, tuple[tuple[str, str], ...]]
    """The VMs whose migrations wait for a place, by their node."""
    heading: Mapping[str, tuple[Object, ...]]
    """VMIs of other nodes that migrate to a node, or have left it while their old pod has not ended."""
    pods_complete: bool


def motion(cluster: Cluster) -> Motion:
    """Return the pods and migrations of a cluster, grouped once."""
    return cluster.cached(_motion)


def _motion(cluster: Cluster) -> Motion:
    pods: dict[tuple[str, str], list[Object]] = {}
    targets: dict[str, Object] = {}
    attachments: dict[str, list[Object]] = {}
    for pod in sorted(cluster.known(POD), key=_age):
        kind = pod.labels.get("kubevirt.io")
        if kind == "hotplug-disk":
            for owner in pod.metadata["ownerReferences"].items():
                attachments.setdefault(owner["uid"].text or "", []).append(pod)
        elif kind == "virt-launcher":
            pods.setdefault((vms.namespace_of(pod), candidates.vmi_name(pod)), []).append(pod)
            job = pod.labels.get(JOB)
            if job:
                targets[job] = pod
    found = {(vms.namespace_of(vmi), vmi.name): vmi for vmi in cluster.known(VMI)}
    running: dict[str, list[tuple[str, str]]] = {}
    waiting: dict[str, list[tuple[str, str]]] = {}
    heading: dict[str, list[Object]] = {}
    for migration in cluster.known(VMIM):
        phase = migration.at("status", "phase").text or _PENDING
        if phase in migrations.FINAL_PHASES:
            continue
        key = vms.namespace_of(migration), migration.at("spec", "vmiName").text or ""
        target = targets.get(migration.metadata["uid"].text or "-")
        vmi = found.get(key)
        source = _source(vmi, migration) if vmi is not None else ""
        (waiting if phase == _PENDING and target is None else running).setdefault(source, []).append(key)
        if vmi is not None:
            to = _target_node(vmi, migration, target)
            if to and to != vmi.at("status", "nodeName").text:
                heading.setdefault(to, []).append(vmi)
    for node, vmi in _moved(pods, found):
        if vmi not in heading.get(node, ()):
            heading.setdefault(node, []).append(vmi)
    return Motion(
        _frozen(pods),
        targets,
        _frozen(attachments),
        {node: tuple(sorted(keys)) for node, keys in running.items()},
        {node: tuple(sorted(keys)) for node, keys in waiting.items()},
        {node: tuple(sorted(some, key=lambda vmi: vmi.full_name)) for node, some in heading.items()},
        _complete(cluster),
    )


def _moved(
    pods: Mapping[tuple[str, str], Sequence[Object]], found: Mapping[tuple[str, str], Object]
) -> Iterator[tuple[str, Object]]:
    """Yield the VMIs that have a living pod on another node than their own, with that node."""
    for key, some in pods.items():
        vmi = found.get(key)
        here = vmi.at("status", "nodeName").text if vmi is not None else None
        if vmi is None or not here or vmi.at("status", "phase").text in migrations.FINAL_PHASES:
            continue
        nodes = {pod.at("spec", "nodeName").text for pod in some if _lives(pod) and _is_of(pod, vmi)}
        yield from ((node, vmi) for node in sorted(filter(None, nodes)) if node != here)


_PENDING: Final = "Pending"


K = TypeVar("K")


def _frozen(groups: Mapping[K, list[Object]]) -> dict[K, tuple[Object, ...]]:
    return {key: tuple(some) for key, some in groups.items()}


def _age(obj: Object) -> tuple[str, str]:
    return obj.metadata["creationTimestamp"].text or "", obj.name


def _complete(cluster: Cluster) -> bool:
    try:
        for _ in cluster.list(POD):
            pass
    except Unseen:
        return False
    return True


def _lives(pod: Object) -> bool:
    return pod.at("status", "phase").text not in FINISHED


def _is_of(pod: Object, vmi: Object) -> bool:
    """Whether a pod with the name of the VMI belongs to it, and not to an earlier one."""
    made_by, uid = pod.labels.get(launcher_pod.CREATED_BY), vmi.metadata["uid"].text
    return not made_by or not uid or made_by == uid


def _progress(vmi: Object, migration: Object) -> Field:
    """Return the ``migrationState`` of a VMI if it is that of this migration, else an absent field."""
    state = vmi.at("status", "migrationState")
    uid, own = state["migrationUid"].text, migration.metadata["uid"].text
    return state if uid is not None and uid == own else vmi["-"]


def _source(vmi: Object, migration: Object) -> str:
    return _progress(vmi, migration)["sourceNode"].text or vmi.at("status", "nodeName").text or ""


def _target_node(vmi: Object, migration: Object, target: Object | None) -> str:
    bound = target.at("spec", "nodeName").text if target is not None else None
    return bound or _progress(vmi, migration)["targetNode"].text or ""


# --- one VM --------------------------------------------------------------------------------------------------------


def of(vmi: Object, cluster: Cluster) -> VmState:
    """Return the state of a VMI on its node. Never raises."""
    groups = motion(cluster)
    own = [pod for pod in groups.pods.get((vms.namespace_of(vmi), vmi.name), ()) if _is_of(pod, vmi)]
    migration = next(reversed([each for each in migrations.own(vmi, cluster) if _is_unfinished(each)]), None)
    found = _without_migration(vmi, own, cluster)
    if found is None:
        found = _unstarted(vmi, own, cluster) if migration is None else _migrating(vmi, migration, own, cluster)
    if found.state in (State.ENDED, State.STOPPING):
        return found
    failures = migration_failures.in_a_row(vmi, cluster)
    attempts = max(len(failures), len(migrations.failed_in_a_row(vmi, cluster)))
    flags = tuple(_flags(vmi, migration, cluster))
    return replace(found, flags=flags, attempts=attempts, failure=failures[-1] if failures else None)


def visitors(node: str, cluster: Cluster) -> Iterator[tuple[Object, VmState]]:
    """Yield the VMIs of other nodes that arrive on a node, or have left it while their old pod has not ended."""
    for vmi in motion(cluster).heading.get(node, ()):
        here = vmi.at("status", "nodeName").text or ""
        found = of(vmi, cluster)
        if found.target == node:
            yield vmi, replace(found, flags=(*found.flags, Flag.ARRIVING), source=here)
        else:
            yield vmi, replace(found, state=State.ARRIVED, target=here, until=None)


def _is_unfinished(migration: Object) -> bool:
    return migration.at("status", "phase").text not in migrations.FINAL_PHASES


def _without_migration(vmi: Object, own: Sequence[Object], cluster: Cluster) -> VmState | None:
    """Return a state that does not depend on a migration; None: none of them."""
    node, phase = vmi.at("status", "nodeName").text or "", vmi.at("status", "phase").text
    here = [pod for pod in own if pod.at("spec", "nodeName").text == node]
    if here and not _lives(here[-1]) and not any(_lives(pod) for pod in own):
        return VmState(State.ENDED)
    if vmi.deleted:
        return VmState(State.STOPPING, since=clock.instant(vmi.metadata["deletionTimestamp"].text))
    reported = vmi.condition("LiveMigratable")
    if phase in STARTING_PHASES or (phase == "Running" and not reported.present):
        return VmState(State.STARTING, since=_entered(vmi, phase))
    moving = any(map(_is_unfinished, migrations.own(vmi, cluster)))
    if moving:
        return None
    strategy = _strategy(vmi, cluster)
    if strategy == "LiveMigrate" and vmis.migratable(vmi) is False:
        return VmState(State.REFUSED, since=clock.instant(reported["lastTransitionTime"].text))
    if strategy == "External":
        return VmState(State.EXTERNAL)
    mark = vmi.at("status", "evacuationNodeName").text
    if mark and mark != node:
        return VmState(State.STALE_MARK, detail=mark)
    return None


def _strategy(vmi: Object, cluster: Cluster) -> str:
    try:
        return expand.strategy(vmi, cluster).value
    except Unseen:
        return ""


def _entered(vmi: Object, phase: str | None) -> datetime | None:
    return clock.instant(migrations.entered(vmi, phase or ""))


def _unstarted(vmi: Object, own: Sequence[Object], cluster: Cluster) -> VmState:
    """Return the state of a VMI without an unfinished migration."""
    node = vmi.at("status", "nodeName").text or ""
    marked = vmi.at("status", "evacuationNodeName").text == node and bool(node)
    tainted = _is_tainted(node, cluster) and _migrates(vmi, cluster)
    two = _two_pods(own, None, cluster)
    if not (marked or tainted):
        return two or AT_REST
    since = clock.instant(vmi.condition("EvictionRequested")["lastTransitionTime"].text) if marked else None
    places = _places(vmi, node, cluster) if _queues_before_migrations(cluster) else None
    if places is None and two is not None:
        return two
    found = VmState(State.MARKED, since=since, late=_is_older(since, timedelta(seconds=60), cluster))
    return found if places is None else replace(places, state=State.MARKED, since=since)


def _queues_before_migrations(cluster: Cluster) -> bool:
    """Whether the evacuation controller creates migrations only for VMs that have a place."""
    return not versions.gate_may_be_on(cluster, Gate.MIGRATION_PRIORITY_QUEUE)


def _migrates(vmi: Object, cluster: Cluster) -> bool:
    return vmis.migratable(vmi) is True and _strategy(vmi, cluster) in ("LiveMigrate", "LiveMigrateIfPossible")


def _two_pods(own: Sequence[Object], target: Object | None, cluster: Cluster) -> VmState | None:
    living = [pod for pod in own if _lives(pod) and pod is not target]
    if len(living) < 2:
        return None
    since = clock.instant(living[-1].metadata["creationTimestamp"].text)
    ending = clock.instant(living[0].metadata["deletionTimestamp"].text)
    since = ending or since
    return VmState(
        State.TWO_PODS, since=since, detail=living[0].name, late=_is_older(since, timedelta(minutes=5), cluster)
    )


def _migrating(vmi: Object, migration: Object, own: Sequence[Object], cluster: Cluster) -> VmState:
    """Return the state of a VMI with an unfinished migration."""
    groups = motion(cluster)
    target = groups.targets.get(migration.metadata["uid"].text or "-")
    phase = migration.at("status", "phase").text or _PENDING
    state = _progress(vmi, migration)
    created = clock.instant(migration.metadata["creationTimestamp"].text)
    base = VmState(
        migration=migration, target=_target_node(vmi, migration, target), since=_phase_since(migration, created)
    )
    if phase in ("WaitingForSync", "Synchronizing"):
        return replace(base, state=State.DECENTRALIZED)
    if phase == "Running" and state["completed"].boolean:
        return replace(base, state=State.NOT_CLOSED, detail=names(_open_conditions(vmi)), since=_time(state, "end"))
    if state["mode"].text == "PostCopy":
        return replace(base, state=State.POST_COPY, since=_time(state, "start"))
    if _is_aborting(migration, state):
        asked = clock.instant(migration.metadata["deletionTimestamp"].text) or base.since
        late = _is_older(asked, timedelta(minutes=5), cluster)
        return replace(base, state=State.ABORTING, since=asked, late=late)
    if phase == "Running":
        return _copying(vmi, state, base, cluster)
    if phase in ("Scheduled", "PreparingTarget", "TargetReady"):
        return replace(base, state=State.PREPARING)
    if target is not None:
        return _with_target(vmi, migration, target, base, cluster)
    if phase == _PENDING:
        return _before_target(vmi, migration, own, replace(base, since=created), cluster)
    return replace(base, state=State.TARGET_PENDING)


def _is_aborting(migration: Object, state: Field) -> bool:
    if state["abortStatus"].text == "Failed":
        return False
    asked = migration.deleted or migrations.condition_is_true(migration, "migrationAbortRequested")
    return asked or state["abortStatus"].text == "Aborting"


def _open_conditions(vmi: Object) -> list[str]:
    kinds = ("HotVCPUChange", "HotMemoryChange", "MigrationRequired")
    return [kind for kind in kinds if migrations.condition_is_true(vmi, kind)]


def _phase_since(migration: Object, created: datetime | None) -> datetime | None:
    return clock.instant(migrations.entered(migration, migration.at("status", "phase").text or "")) or created


def _time(state: Field, which: str) -> datetime | None:
    return clock.instant(state[f"{which}Timestamp"].text)


# --- a migration that has no target pod yet ------------------------------------------------------------------------


def _before_target(vmi: Object, migration: Object, own: Sequence[Object], base: VmState, cluster: Cluster) -> VmState:
    two = _two_pods(own, None, cluster)
    if two is not None:
        return replace(two, migration=migration)
    waits = _backoff_end(vmi, migration, cluster)
    current = clock.now(cluster)
    if waits is not None and (current is None or current < waits):
        return replace(base, state=State.BACKOFF, until=_known(waits, cluster))
    for kind, state in _BLOCKED.items():
        if migrations.condition_is_true(migration, kind):
            condition = migration.condition(kind)
            found = replace(base, state=state, detail=condition["message"].text or condition["reason"].text or "")
            if state is State.BLOCKED_BY_VOLUME:
                return replace(found, until=_after(base.since, _timeout(migration, _UTILITY_TIMEOUT, 150), cluster))
            return found
    places = _places(vmi, _source(vmi, migration), cluster)
    if places is not None:
        return replace(base, state=State.QUEUED, holders=places.holders, ahead=places.ahead, detail=places.detail)
    if _is_older(base.since, timedelta(seconds=60), cluster) and motion(cluster).pods_complete:
        return replace(base, state=State.NO_TARGET)
    return replace(base, state=State.STILL)


_BLOCKED: Final = {
    "migrationBlockedByBackup": State.BLOCKED_BY_BACKUP,
    "migrationBlockedByUtilityVolumes": State.BLOCKED_BY_VOLUME,
    "migrationRejectedByResourceQuota": State.QUOTA,
}
"""The conditions of a migration that name what it waits for."""


def _backoff_end(vmi: Object, migration: Object, cluster: Cluster) -> datetime | None:
    """Return when KubeVirt starts a migration after failures: 20 s after one, twice that after each further one."""
    failed = migrations.failed_in_a_row(vmi, cluster)
    if not failed or not migrations.is_automatic(migration):
        return None
    last = clock.instant(migrations.entered(failed[-1], "Failed"))
    return last + timedelta(seconds=20 * 2 ** (min(len(failed), 5) - 1)) if last is not None else None


def _places(vmi: Object, node: str, cluster: Cluster) -> VmState | None:
    """Return who holds the places that a VM of a node waits for; None: a place is free, or that is not known."""
    try:
        limits = cluster.cached(parallel_migrations.limits)
    except Unseen:
        return None
    groups = motion(cluster)
    everywhere = [key for keys in groups.running.values() for key in keys]
    here = groups.running.get(node, ())
    own = vms.namespace_of(vmi), vmi.name
    others = [key for key in groups.waiting.get(node, ()) if key != own]
    if limits.node > 0 and len(here) >= limits.node:
        words = f"{node} may send {limits.node} at a time"
        return VmState(holders=tuple(here), ahead=len(others), detail=words)
    if limits.cluster > 0 and len(everywhere) >= limits.cluster:
        waiting = [key for keys in groups.waiting.values() for key in keys if key != own]
        words = f"the cluster may run {limits.cluster} migrations at a time"
        return VmState(holders=tuple(sorted(everywhere)), ahead=len(waiting), detail=words)
    return None


# --- a migration with a target pod ---------------------------------------------------------------------------------


def _with_target(vmi: Object, migration: Object, target: Object, base: VmState, cluster: Cluster) -> VmState:
    created = clock.instant(target.metadata["creationTimestamp"].text)
    if target.at("status", "phase").text == _PENDING:
        placed = target.condition("PodScheduled")
        if placed["status"].text == "False" and placed["reason"].text == "Unschedulable":
            end = _after(created, _timeout(migration, _UNSCHEDULABLE_TIMEOUT, 300), cluster)
            words = placed["message"].text or ""
            return replace(base, state=State.UNSCHEDULABLE, since=created, until=end, detail=words)
        end = _after(created, _timeout(migration, _PENDING_TIMEOUT, 900), cluster)
        return replace(base, state=State.TARGET_PENDING, since=created, until=end)
    if target.condition("Ready")["status"].text != "True":
        return replace(base, state=State.TARGET_NOT_READY, since=created, detail=target.full_name)
    if next(launcher_pod.attached_claims(vmi["spec"]), None) is not None:
        attaching = motion(cluster).attachments.get(target.metadata["uid"].text or "-", ())
        waiting = next((pod for pod in attaching if pod.condition("Ready")["status"].text != "True"), None)
        if waiting is not None or not attaching:
            name = waiting.full_name if waiting is not None else ""
            return replace(base, state=State.TARGET_NOT_READY, since=created, detail=name)
    return replace(base, state=State.PREPARING)


def _timeout(migration: Object, annotation: str, default: int) -> timedelta:
    text = migration.annotations.get(annotation, "")
    return timedelta(seconds=int(text) if text.isascii() and text.isdigit() and len(text) < 9 else default)


def _copying(vmi: Object, state: Field, base: VmState, cluster: Cluster) -> VmState:
    start = _time(state, "start") or base.since
    found = migration_timeouts.settings(vmi, state, cluster)
    limit = migration_timeouts.seconds(vmi, found)
    paused = state["mode"].text == "Paused"
    if limit is not None and paused:
        limit *= 2
    until = _after(start, timedelta(seconds=limit), cluster) if limit is not None else None
    if paused:
        return replace(base, state=State.PAUSED, since=start, until=until)
    usual = expected(vmi, found, cluster)
    late = usual is not None and _is_older(start, 2 * usual, cluster)
    return replace(base, state=State.RUNNING, since=start, until=until, late=late)


def last_duration(vmi: Object, cluster: Cluster) -> timedelta | None:
    """Return how long the last successful migration of a VMI took; None: not known."""
    done = [each for each in migrations.own(vmi, cluster) if each.at("status", "phase").text == "Succeeded"]
    states = [each.at("status", "migrationState") for each in reversed(done)]
    own = vmi.at("status", "migrationState")
    for state in (*([own] if own["completed"].boolean and not own["failed"].boolean else []), *states):
        begin, end = _time(state, "start"), _time(state, "end")
        if begin is not None and end is not None and end >= begin:
            return max(end - begin, timedelta(seconds=1))
    return None


_SLOW: Final = 1.25e8
"""Bytes per second of a 1 Gbit/s network: assumed where no bandwidth is configured."""


def expected(vmi: Object, found: MigrationSettings | None, cluster: Cluster) -> timedelta | None:
    """Return how long a migration should take: as long as the last one, else the memory at the bandwidth."""
    last = last_duration(vmi, cluster)
    if last is not None:
        return last
    size = migration_timeouts.size(vmi)
    if not size:
        return None
    return timedelta(seconds=max(30.0, size / ((found.bandwidth if found is not None else 0) or _SLOW)))


# --- flags and times -----------------------------------------------------------------------------------------------


def _flags(vmi: Object, migration: Object | None, cluster: Cluster) -> Iterator[Flag]:
    name = vmi.at("status", "nodeName").text or ""
    node = _node(name, cluster)
    tainted = _is_tainted(name, cluster)
    automatic = migration is not None and migrations.is_automatic(migration)
    marked = vmi.at("status", "evacuationNodeName").text == name
    cordoned = node is None or node.at("spec", "unschedulable").boolean is True
    if marked and not cordoned and not tainted and (migration is None or automatic):
        yield Flag.LEFTOVER
    if tainted and _migrates(vmi, cluster):
        yield Flag.TAINTED
    if migration is not None and _EVACUATION not in migration.annotations:
        yield Flag.FOREIGN


_EVACUATION: Final = migrations.AUTOMATIC[0]


def _node(name: str, cluster: Cluster) -> Object | None:
    try:
        return cluster.get(NODE, "", name) if name else None
    except Unseen:
        return None


def drain_taint(cluster: Cluster) -> str:
    """Return the key of the taint that makes KubeVirt evacuate a node."""
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    said = migration_limits.block(found)["nodeDrainTaintKey"].text if found is not None else None
    return said or _TAINT


def _is_tainted(name: str, cluster: Cluster) -> bool:
    node = _node(name, cluster)
    taints = node.at("spec", "taints").items() if node is not None else ()
    return any(taint["key"].text == drain_taint(cluster) and taint["effect"].text == "NoSchedule" for taint in taints)


def _is_older(since: datetime | None, limit: timedelta, cluster: Cluster) -> bool:
    """Whether a state certainly lasts longer than this."""
    current = clock.now(cluster)
    if since is None or current is None:
        return False
    return current - since > (limit if clock.exact(cluster) is not None else max(limit, _COARSE))


def _after(since: datetime | None, wait: timedelta, cluster: Cluster) -> datetime | None:
    try:
        return _known(since + wait, cluster) if since is not None else None
    except OverflowError:
        return None


def _known(until: datetime, cluster: Cluster) -> datetime | None:
    """Return the time of a next step, if the time of the listing is known."""
    return until if clock.exact(cluster) is not None else None
