"""Whether Longhorn is on the way to the copies without which its budget of a node stays.

A replica of a node that was away is used again once its instance manager runs there, and others
are built after ten minutes. Sources: longhorn/longhorn-manager:controller/volume_controller.go
#replenishReplicas, :engineapi/types.go#RebuildStatus #GetBackendReplicaURL, :types/setting.go
(replica-replenishment-wait-interval), :k8s/pkg/apis/longhorn/v1beta2/volume.go#VolumeStatus.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.budgets import waiting_pods
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    OperatorAnswer,
    PodEviction,
    Way,
    is_schedulable,
)
from virt_admit.forecasts.drain.targets import rebuild_slots, rebuilt_volumes
from virt_admit.forecasts.placement.components.longhorn import longhorn_copies, unplaced_replicas
from virt_admit.model.commands import typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ENGINE,
    LONGHORN_REPLICA,
    LONGHORN_VOLUME,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates import maintenance_updates, updaters

READS: Final[Reads] = union(
    clock.READS,
    waiting_pods.READS,
    updaters.READS,
    rebuild_slots.READS,
    rebuilt_volumes.READS,
    longhorn_copies.READS,
    unplaced_replicas.READS,
    node_health.READS,
    {
        LONGHORN_ENGINE: ("spec.nodeID", "status.ownerID"),
        LONGHORN_REPLICA: ("metadata.creationTimestamp", "spec.nodeID"),
        LONGHORN_VOLUME: ("status.lastDegradedAt", "status.state"),
        NODE: (*CONDITIONS, "status.conditions.lastTransitionTime", "spec.unschedulable"),
    },
)
_REUSED: Final = timedelta(minutes=10)
"""Longhorn waits so long for the former replica before it builds another one."""
_REBOOT: Final = timedelta(hours=1)
"""A copy that was lost longer before its node came back was not lost with that node."""
_USUAL: Final = timedelta(hours=6)
"""A rebuild that takes longer than this may never end."""


def answer(reason: str, volumes: Sequence[Object], eviction: PodEviction) -> OperatorAnswer:
    """Return what a budget does whose volumes are to have copies elsewhere, and lack them.

    Args:
        reason: which copies are on the node that is drained alone.
        volumes: those.
        eviction: of the pod of the budget.
    """
    if all(each.at("status", "state").text == "detached" for each in volumes):
        first = "Start the VM that uses it, because Longhorn rebuilds only attached volumes, and "
        return OperatorAnswer(Way.NOW, reason, f"{first}{_WAIT}")
    built = [_rebuilt(each, eviction) or _returned(each, eviction) for each in volumes]
    if built and all(built):
        return OperatorAnswer(
            Way.WAITS, f"{reason}, and {names(dict.fromkeys(built), 160)}", passes=True
        )
    held = rebuild_slots.waits(volumes, eviction.cluster)
    if held is None:
        return _unplaced(reason, volumes, eviction)
    return OperatorAnswer(Way.NOW, f"{reason}, and {held.why}", capital(held.remedy or _WAIT))


def _unplaced(reason: str, volumes: Sequence[Object], eviction: PodEviction) -> OperatorAnswer:
    """Return that a copy is waited for, or why no node takes one of the first such volume."""
    every = (unplaced_replicas.of(each, eviction.cluster) for each in volumes)
    short = next((each for each in every if each is not None), None)
    if short is None:
        return OperatorAnswer(Way.NOW, reason, capital(_WAIT))
    return OperatorAnswer(Way.NOW, f"{reason}, and {short.why}", capital(short.remedy or _WAIT))


_WAIT: Final = "wait until Longhorn has rebuilt a copy on another node that is not cordoned."


def _rebuilt(volume: Object, eviction: PodEviction) -> str:
    """Return that Longhorn copies a volume to a node that its budget counts; empty: it does not,
    or not without an error.
    """
    engine = eviction.cluster.cached(rebuilt_volumes.write_only).get(volume.name)
    if engine is None or not _is_written(engine, eviction):
        return ""
    every = rebuilt_volumes.rebuilds(engine)
    done: dict[str, int] = {}
    for name, mode in engine.at("status", "replicaModeMap").entries():
        node = _node_of(name, eviction) if mode.text == rebuilt_volumes.WRITE_ONLY else ""
        if not _counts(node, eviction):
            continue
        found = every.get(name)
        if found is not None and found["error"].text:
            return ""
        if found is not None and found["isRebuilding"].boolean and _is_new(name, node, eviction):
            done[node] = rebuilt_volumes.percent(found) or 0
    if not done:
        return ""
    return f"Longhorn rebuilds a copy on {names(sorted(done))} ({min(done.values())}% done)"


def _is_written(engine: Object, eviction: PodEviction) -> bool:
    """Return whether the nodes report that run an engine and write its status: it stays as it was
    otherwise.
    """
    every = (engine.at("spec", "nodeID").text, engine.at("status", "ownerID").text)
    nodes = [find(eviction.cluster, NODE, "", name) for name in every if name]
    return bool(nodes) and all(
        each is not None
        and each.is_true("Ready")
        and not node_health.silence_now(each.name, eviction.cluster)
        for each in nodes
    )


def _is_new(replica: str, node: str, eviction: PodEviction) -> bool:
    """Return whether a replica was made, or its node came back, within the usual time."""
    cluster = eviction.cluster
    own = find(cluster, LONGHORN_REPLICA, eviction.budget.namespace, replica)
    host = find(cluster, NODE, "", node)
    ages = (
        clock.age(own, cluster) if own is not None else None,
        clock.since(host.condition("Ready")["lastTransitionTime"].text, cluster)
        if host is not None
        else None,
    )
    return any(age is not None and age <= _USUAL for age in ages)


def _node_of(replica: str, eviction: PodEviction) -> str:
    found = find(eviction.cluster, LONGHORN_REPLICA, eviction.budget.namespace, replica)
    return found.at("spec", "nodeID").text or "" if found is not None else ""


def _counts(node: str, eviction: PodEviction) -> bool:
    return node not in ("", eviction.node) and is_schedulable(node, eviction.cluster)


def _returned(volume: Object, eviction: PodEviction) -> str:
    """Return that a node with a former copy of a volume has just come back; empty: none has."""
    cluster = eviction.cluster
    if clock.exact(cluster) is None:
        return ""
    for replica in cluster.cached(longhorn_copies.by_volume).get(volume.name, ()):
        name = replica.at("spec", "nodeID").text or ""
        node = find(cluster, NODE, "", name) if _counts(name, eviction) else None
        if node is None or not node.is_true("Ready"):
            continue
        age = clock.since(node.condition("Ready")["lastTransitionTime"].text, cluster)
        lost = clock.since(volume.at("status", "lastDegradedAt").text, cluster)
        if age is None or (lost is not None and lost > age + _REBOOT):
            continue
        if age <= _REUSED:
            back = f"{name}, which has been back for only {clock.duration(age)}"
            return f"Longhorn uses the copy on {back}"
    return ""


def on_cordoned(reason: str, cordoned: Sequence[Object], eviction: PodEviction) -> OperatorAnswer:
    """Return what a budget waits for whose other copies are on these cordoned nodes: an update
    brings them back by itself, an administrator ends a maintenance.
    """
    away, cluster = tuple(each.name for each in cordoned), eviction.cluster
    by_hand = updaters.maintenances(cluster)
    if all(each not in by_hand and waiting_pods.updater(each, cluster) for each in away):
        be = "are" if len(away) > 1 else "is"
        return OperatorAnswer(Way.NOW, reason, f"Wait until {names(away)} {be} back.", away)
    words, command = maintenance_updates.way_back(cordoned[0])
    return OperatorAnswer(Way.NOW, reason, typed(capital(words), command))
