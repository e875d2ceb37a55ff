"""Whether Longhorn is on the way to the copies without which its budget of a node stays.

A replica of a node that was away is used again once its instance manager runs there, and others
are built after ten minutes. Sources: longhorn/longhorn-manager:controller/volume_controller.go
#replenishReplicas, :engineapi/types.go#RebuildStatus #GetBackendReplicaURL, :types/setting.go
(replica-replenishment-wait-interval), :k8s/pkg/apis/longhorn/v1beta2/volume.go#VolumeStatus;
replicas that a policy moves: :controller/node_controller.go#shouldEvictReplica,
:controller/volume_controller.go#cleanupEvictionRequestedReplicas (with a copy too many, that of the
node goes first), longhorn/longhorn#12870.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
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
from virt_admit.forecasts.placement.components.longhorn import (
    longhorn_copies,
    unhealthy_volumes,
    unplaced_replicas,
)
from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ENGINE,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, WHOLE_CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, count, cut_middle, names
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
        LONGHORN_VOLUME: (
            *("status.lastDegradedAt", "status.state", "spec.numberOfReplicas"),
            *WHOLE_CONDITIONS,
        ),
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


LAST_ALONE: Final = "block-if-contains-last-replica"
"""The policy that Longhorn has by default."""


def placeless(
    kept: Sequence[Object], eviction: PodEviction
) -> tuple[Sequence[str], Sequence[Object]]:
    """Return the names of the volumes of replicas that are to move, and those of them that are
    known to have no place for it.
    """
    cluster, namespace = eviction.cluster, eviction.budget.namespace
    ids = sorted({each.at("spec", "volumeName").text or "" for each in kept})
    every = [find(cluster, LONGHORN_VOLUME, namespace, each) for each in ids]
    return ids, [each for each in every if each is not None and _others(each, eviction)]


def without_place(
    ids: Sequence[str], stuck: Sequence[Object], healthy: Set[str], eviction: PodEviction
) -> OperatorAnswer:
    """Return that replicas which all have to leave a node have no place to move to.

    Args:
        ids: the volumes of all its replicas.
        stuck: those of them without a place.
        healthy: the other nodes whose copies Longhorn counts.
        eviction: of the pod of the budget.
    """
    cluster, node = eviction.cluster, eviction.node
    volume = next((each for each in stuck if _says(each, cluster)), stuck[0])
    places, wanted = _others(volume, eviction), volume.at("spec", "numberOfReplicas").integer
    total = count(len(ids), "volume")
    which = f"{len(stuck)} of {total}" if len(ids) > len(stuck) else total
    each = f"each other node with disks ({names(places, 120)})"
    if len(places) == 1:
        each = f"{places[0]}, the only other node with disks,"
    reason = (
        f"node-drain-policy block-for-eviction first moves the replicas of {which} off {node}, "
        f"such as of {volume.name} (numberOfReplicas {wanted}), but {each} has one already and "
        f"takes no second one (replica-soft-anti-affinity is false){_says(volume, cluster)}"
    )
    return OperatorAnswer(Way.NEVER, reason, _otherwise(stuck, ids, healthy, eviction))


def _others(volume: Object, eviction: PodEviction) -> Sequence[str]:
    return unplaced_replicas.occupied(volume, eviction.node, eviction.cluster)


def _says(volume: Object, cluster: Cluster) -> str:
    """Return what Longhorn says about a replica that it does not place; empty: nothing."""
    said = volume.condition("Scheduled")
    if said["status"].text != "False" or not (why := said["message"].words):
        return ""
    lasts = clock.lasting(said["lastTransitionTime"].text, cluster)
    reason = f" ({said['reason'].text})" if said["reason"].text else ""
    return f". Volumes report{lasts}: Scheduled is False{reason}: {cut_middle(why, 100)}"


def _otherwise(
    stuck: Sequence[Object], ids: Sequence[str], healthy: Set[str], eviction: PodEviction
) -> str:
    """Return the ways out: a further node always; one that leaves the replicas where they are only
    if all their volumes are healthy on other nodes.
    """
    namespace, cluster = eviction.budget.namespace, eviction.cluster
    copies, which = cluster.cached(longhorn_copies.healthy), names([each.name for each in stuck])
    elsewhere = {each: copies.get((namespace, each), set()) & healthy for each in ids}
    ways = ["Add a node with disks for Longhorn, to which it moves them"]
    if all(elsewhere.values()):
        change = {"value": LAST_ALONE}
        command = merge_patch(LONGHORN_SETTING, "node-drain-policy", namespace, change)
        stays = "as all these volumes have a healthy copy elsewhere, let the replicas stay on"
        ways.append(typed(f"{stays} {eviction.node}", command))
    every = {len(elsewhere[each.name]) if _is_enough(each, elsewhere) else 0 for each in stuck}
    if len(every) == 1 and (number := max(every)):
        ways.append(f"as a decision, set numberOfReplicas of {which} to {number}")
    return "; or ".join(ways)


def _is_enough(volume: Object, elsewhere: Mapping[str, Set[str]]) -> bool:
    """Return whether a volume may be left with its healthy copies on other nodes."""
    wanted = volume.at("spec", "numberOfReplicas").integer or 0
    return bool(unhealthy_volumes.fewer(volume, len(elsewhere[volume.name]), wanted))
