"""What each VM of a node is doing now: waiting for a place, copying its memory, arriving,
or nothing.

The first row of ``State`` that fits wins. Names: N is the node, M the newest unfinished migration
of the VMI, T the target pod of M, S the newest pod of the VMI on N. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/migration/ migration.go#handleTargetPodCreation
#findRunningMigrations #handleMigrationBackoff #handlePendingPodTimeout #handleUtilityVolumes
#handleVMBackup #processMigrationPhase; :pkg/virt-controller/watch/drain/evacuation/evacuation.go
#vmisToMigrate;
:pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go#admitLauncherPod.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.failed_migrations import old_sidecars, remedies
from virt_admit.forecasts.drain.states import (
    launcher_changes,
    lost_launchers,
    vm_states_migrating,
    vm_states_motion,
    vm_states_queue,
    vm_states_times,
)
from virt_admit.forecasts.drain.states.vm_states_kinds import AT_REST, PLACED, Flag, State, VmState
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.components import webhook_deadlocks
from virt_admit.forecasts.placement.refusals import (
    exceeded_quotas,
    grown_launchers,
    overcommitted_memory,
)
from virt_admit.forecasts.placement.starts import ovn_ports, pod_starts
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, union
from virt_admit.model.kubevirt.instances import (
    expand,
    migration_failures,
    migration_timeouts,
    migrations,
    vmis,
    vms,
)
from virt_admit.model.kubevirt.launcher.launcher_pod import MIGRATION_JOB
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import node_phases

READS: Final = union(
    candidates.READS,
    pod_starts.READS,
    ovn_ports.READS,
    migrations.READS,
    migration_timeouts.READS,
    launcher_changes.READS,
    remedies.READS,
    grown_launchers.READS,
    old_sidecars.READS,
    exceeded_quotas.READS,
    overcommitted_memory.READS,
    webhook_deadlocks.READS,
    {
        VMI: ("status",),
        VMIM: (
            *(f"metadata.annotations.{key}" for key in vm_states_migrating.TIMEOUTS),
            *("metadata.uid", "spec", "status.conditions", "status.phaseTransitionTimestamps"),
        ),
        POD: (
            *("metadata.uid", "metadata.deletionGracePeriodSeconds"),
            *("status.conditions.reason", "status.conditions.message"),
            *("status.conditions.lastTransitionTime", *CONDITIONS),
        ),
    },
)
"""The fields that decide on states."""


STARTING_PHASES: Final = frozenset(("Pending", "Scheduling", "Scheduled", "WaitingForSync"))


def of(vmi: Object, cluster: Cluster) -> VmState:
    """Return the state of a VMI on its node. Never raises."""
    own = vm_states_motion.own_pods(vmi, cluster)
    migration = next(
        reversed([each for each in migrations.own(vmi, cluster) if not each.ended]), None
    )
    found = _without_migration(vmi, own, cluster)
    if found is None:
        found = (
            _unstarted(vmi, own, cluster)
            if migration is None
            else vm_states_migrating.migrating(vmi, migration, own, cluster)
        )
    if found.state in (State.ENDED, State.STOPPING):
        return found
    failures = migration_failures.in_a_row(vmi, cluster)
    attempts = max(len(failures), len(migrations.failed_in_a_row(vmi, cluster)))
    flags = (*_flags(vmi, migration, cluster), *found.flags)
    target = _node(found.target, cluster)
    silent = (
        found.state in PLACED and target is not None and bool(node_health.silence(target, cluster))
    )
    return replace(
        found,
        flags=flags,
        attempts=attempts,
        failure=failures[-1] if failures else None,
        silent=silent,
    )


def visitors(node: str, cluster: Cluster) -> Iterator[tuple[Object, VmState]]:
    """Yield the VMIs of other nodes that arrive on a node,
    or have a pod there that has not ended.
    """
    groups = vm_states_motion.motion(cluster)
    for vmi in groups.arriving.get(node, ()):
        found = of(vmi, cluster)
        yield (
            vmi,
            replace(
                found,
                flags=(*found.flags, Flag.ARRIVING),
                source=vmi.at("status", "nodeName").text or "",
            ),
        )
    for vmi in groups.left.get(node, ()):
        yield vmi, _arrived(vmi, node, cluster)
    yield from ((vmi, of(vmi, cluster)) for vmi in groups.stranded.get(node, ()))


def unread_migration(vmi: Object, found: VmState, cluster: Cluster) -> str:
    """Return what could not be read of a migration that is under way, or may be; empty: nothing."""
    if found.migration is not None:
        targets = vm_states_motion.motion(cluster).targets
        has_target = found.placed or (found.migration.metadata["uid"].text or "-") in targets
        return "" if has_target else cluster.cached(_unread_pods)(vms.namespace_of(vmi))
    own = filter(vm_states_motion.lives, vm_states_motion.pods(vmi, cluster))
    jobs = {pod.labels.get(MIGRATION_JOB) for pod in own} - {None}
    known = {each.metadata["uid"].text for each in migrations.of_vmi(vmi, cluster)}
    # a migration would remove the mark
    shown = bool(jobs - known) or found.state is State.STALE_MARK
    return gather(migrations.unfinished(vmi, cluster))[1] if shown else ""


def _unread_pods(cluster: Cluster) -> Callable[[str], str]:
    """Return what could not be read if more pods may exist in a namespace,
    which is listed once for all of its VMs.
    """
    return functools.cache(lambda namespace: gather(cluster.list(POD, namespace))[1])


def _arrived(vmi: Object, node: str, cluster: Cluster) -> VmState:
    """Return the state of a VMI for a node that it has left:
    a migration from where it is now does not count there.
    """
    found, here = of(vmi, cluster), vmi.at("status", "nodeName").text or ""
    if found.migration is not None and vm_states_motion.source(vmi, found.migration) != node:
        found = AT_REST
    own = vm_states_motion.own_pods(vmi, cluster)
    both = [pod for pod in own if pod.at("spec", "nodeName").text in (node, here)]
    stays = vm_states_migrating.two_pods(vmi, both, cluster)
    left = replace(
        found, state=State.ARRIVED, target=here, since=_left(vmi, node), until=None, late=False
    )
    return left if stays is None else replace(left, detail=stays.detail, late=stays.late)


def _left(vmi: Object, node: str) -> datetime | None:
    """Return when a VMI left a node; None: not known."""
    state = vmi.at("status", "migrationState")
    return vm_states_times.stamp_of(state, "end") if state["sourceNode"].text == node else None


def _without_migration(vmi: Object, own: Sequence[Object], cluster: Cluster) -> VmState | None:
    """Return a state that does not depend on a migration; None: none of them."""
    if lost_launchers.is_gone(vmi, cluster):
        return VmState(State.GONE)
    node, phase = vmi.at("status", "nodeName").text or "", vmi.at("status", "phase").text
    here = [pod for pod in own if pod.at("spec", "nodeName").text == node]
    if (
        here
        and not vm_states_motion.lives(here[-1])
        and not any(vm_states_motion.lives(pod) for pod in own)
    ):
        return VmState(State.ENDED)
    if vmi.deleted:
        since = clock.instant(vmi.metadata["deletionTimestamp"].text)
        grace = timedelta(seconds=vmis.grace_seconds(vmi))
        return VmState(
            State.STOPPING, since=since, until=vm_states_times.after(since, grace, cluster)
        )
    left = [pod for pod in own if vm_states_motion.lives(pod)]
    alone = len(left) == 1 and left[0].at("spec", "nodeName").text == node
    # a kubelet that is silent never ends it
    if alone and left[0].deleted and not node_health.silence_now(node, cluster):
        return _ending(left[0])
    reported = vmi.condition("LiveMigratable")
    if phase in STARTING_PHASES or (phase == "Running" and not reported.present):
        return VmState(State.STARTING, since=_entered(vmi, phase))
    strategy = _strategy(vmi, cluster)
    if strategy == "External":
        moves = any(not each.ended for each in migrations.own(vmi, cluster))
        asked = moves or vmi.at("status", "evacuationNodeName").text
        return VmState(State.EXTERNAL if asked else State.STILL)
    if any(not each.ended for each in migrations.own(vmi, cluster)):
        return None
    if strategy == "LiveMigrate" and vmis.migratable(vmi) is False:
        return _refused(vmi, node, cluster)
    mark = vmi.at("status", "evacuationNodeName").text
    if mark and mark != node:
        return VmState(State.STALE_MARK, detail=mark)
    return None


def _ending(launcher: Object) -> VmState:
    """Return the state of a VMI whose only pod is being deleted, though the VMI is not.

    Since Kubernetes 1.33 the deletion of a namespace takes its pods first (kubernetes/kubernetes:
    pkg/controller/namespace/deletion/namespaced_resources_deleter.go#deleteAllContent).
    """
    until = clock.instant(launcher.metadata["deletionTimestamp"].text)
    return VmState(State.STOPPING, since=clock.end_asked(launcher), until=until)


def _refused(vmi: Object, node: str, cluster: Cluster) -> VmState:
    """Return the state of a VMI whose eviction is refused, on a node that is drained not before
    that, or would be.
    """
    on, eviction = _node(node, cluster), vmi.condition("EvictionRequested")
    taints = on.at("spec", "taints").items() if on is not None else ()
    key = migration_limits.drain_taint(cluster)
    asked = [clock.instant(each["timeAdded"].text) for each in taints if each["key"].text == key]
    if on is not None and on.at("spec", "unschedulable").boolean:
        asked.append(node_phases.cordoned_since(on))
    if eviction["status"].text == "True":
        asked.append(clock.instant(eviction["lastTransitionTime"].text))
    if not asked and on is not None and not vmi.at("status", "evacuationNodeName").text:
        return VmState(State.REFUSED, flags=(Flag.UNASKED,))
    known = clock.instant(vmi.condition("LiveMigratable")["lastTransitionTime"].text)
    if not asked:
        return VmState(State.REFUSED, since=known)
    first = min(filter(None, asked), default=None)
    return VmState(State.REFUSED, since=max(first, known or first) if first is not None else None)


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
    two = vm_states_migrating.two_pods(vmi, own, cluster)
    if not (marked or tainted):
        return two or AT_REST
    since = (
        clock.instant(vmi.condition("EvictionRequested")["lastTransitionTime"].text)
        if marked
        else None
    )
    full = (
        vm_states_queue.places(vmi, node, cluster)
        if vm_states_queue.before_migrations(cluster)
        else None
    )
    if full is None and two is not None:
        return two
    found = VmState(
        State.MARKED,
        since=since,
        late=vm_states_times.is_older(since, timedelta(seconds=60), cluster),
    )
    return found if full is None else replace(full, state=State.MARKED, since=since)


def _migrates(vmi: Object, cluster: Cluster) -> bool:
    return vmis.migratable(vmi) is True and _strategy(vmi, cluster) in (
        "LiveMigrate",
        "LiveMigrateIfPossible",
    )


def _flags(vmi: Object, migration: Object | None, cluster: Cluster) -> Iterator[Flag]:
    name = vmi.at("status", "nodeName").text or ""
    node = _node(name, cluster)
    tainted = _is_tainted(name, cluster)
    marked = vmi.at("status", "evacuationNodeName").text == name
    cordoned = node is None or node.at("spec", "unschedulable").boolean is True
    if marked and not cordoned and not tainted:
        yield Flag.LEFTOVER
    if tainted and _migrates(vmi, cluster):
        yield Flag.TAINTED
    if migration is not None and not migrations.is_of_drain(migration):
        yield Flag.FOREIGN
    if migration is not None and migrations.copies(vmi):
        yield Flag.COPYING


def _node(name: str, cluster: Cluster) -> Object | None:
    return find(cluster, NODE, "", name)


def _is_tainted(name: str, cluster: Cluster) -> bool:
    node = _node(name, cluster)
    taints = node.at("spec", "taints").items() if node is not None else ()
    key = migration_limits.drain_taint(cluster)
    return any(
        taint["key"].text == key and taint["effect"].text == "NoSchedule" for taint in taints
    )
