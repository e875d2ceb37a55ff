"""Volumes of Longhorn that stay degraded, as no node takes a further replica.

Longhorn places one on a node that is ready and may take replicas, on a disk of it that may, too,
both with the tags of the volume, and without ``replica-soft-anti-affinity`` on no node that has
one. Sources: longhorn/longhorn-manager:scheduler/replica_scheduler.go#ListSchedulableNodes
#FindDiskCandidates #IsDiskEligibleForVolume, :types/types.go#IsSelectorsInTags,
:webhook/resources/node/validator.go (a node that is emptied is closed),
:controller/volume_controller.go#reconcileVolumeCondition,
:k8s/pkg/apis/longhorn/v1beta2/node.go (the reasons in the message of Scheduled).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn import unhealthy_volumes
from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_NODE, LONGHORN_REPLICA, LONGHORN_VOLUME
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = union(
    unhealthy_volumes.READS,
    {
        LONGHORN_VOLUME: (
            *(*CONDITIONS, "status.conditions.reason", "status.conditions.message"),
            *("spec.nodeSelector", "spec.diskSelector", "spec.dataEngine"),
            "spec.replicaSoftAntiAffinity",
        ),
        LONGHORN_NODE: (
            *("metadata.deletionTimestamp", "spec.evictionRequested", "spec.disks", "spec.tags"),
            "status.diskStatus",
        ),
    },
)
_LONGEST: Final = 100
_MOST: Final = 3
"""Nodes of which it is said why they take none."""
_FURTHER: Final = "give Longhorn a further node or disk"
_PRECHECK: Final = "precheck new replica failed"
_NO_REASON: Final = "replica scheduling failed"
"""What Longhorn says where no node was a candidate."""
_NO_ROOM: Final = "insufficient storage"
_CORDONED: Final = "KubernetesNodeCordoned"


class UnplacedReplica(NamedTuple):
    """Why a volume lacks a replica that is not placed."""

    why: str
    """``no node takes the last of its 3 replicas, as …``"""
    remedy: str
    away: frozenset[str] = frozenset()
    """Nodes that are not ready, emptied, deleted or cordoned, and take none as long as they are."""
    maintained: bool = False
    """Whether one of them is cordoned, as for a maintenance, or may be."""
    fewer: str = ""
    """How the volume gets healthy without them, as a decision; empty: it would not be safe."""


class _StorageNode(NamedTuple):
    """A node with disks for replicas."""

    node: Object
    disks: Sequence[Field]
    """Those that may take a replica; all, if none may."""
    why: str = ""
    """Why it takes none; empty: it may."""
    step: str = ""
    away: bool = False
    opens: bool = False
    """Whether its administrator has closed it and nothing else is known against it."""

    @property
    def name(self) -> str:
        return self.node.name


def is_stuck(volume: Object) -> bool:
    """Return whether an attached volume is degraded and Longhorn places no further replica."""
    status, scheduled = volume["status"], volume.condition("Scheduled")
    degraded = status["state"].text == "attached" and status["robustness"].text == "degraded"
    return degraded and scheduled["status"].text == "False"


def of(volume: Object, cluster: Cluster) -> UnplacedReplica | None:
    """Return why no node takes a further replica of a volume; None: one may."""
    if not is_stuck(volume):
        return None
    wanted = volume.at("spec", "numberOfReplicas").integer or 0
    known = unhealthy_volumes.replicas(volume, cluster)
    alive = [each for each in known if not each.at("spec", "failedAt").text]
    places = [each.at("spec", "nodeID").text for each in alive]
    used = set(places) - {"", None}
    shared = unhealthy_volumes.shares_nodes(cluster)
    others = [each for each in _nodes(cluster) if shared or each.name not in used]
    fitting = [each for each in others if _fits(each, volume)]
    hidden = bool(unlisted(cluster, LONGHORN_REPLICA))  # then any node may have one
    free = [each for each in fitting if not (each.why or hidden)]
    reasons = volume.condition("Scheduled")["message"].words.removeprefix(_PRECHECK).strip(": ")
    said = "" if reasons == _NO_REASON else cut_middle(reasons, _LONGEST)
    # with a candidate, what is known against the others is not the cause
    closed = [each for each in fitting if each.why and each.name not in used and not free]
    if hidden and said == _NO_ROOM:
        closed = [each for each in closed if not each.opens]
    closed.sort(key=lambda each: (not each.opens, each.away))
    words = [f"{each.name} {each.why}" for each in closed[:_MOST]]
    unknown = not (closed or free) and bool(unlisted(cluster, LONGHORN_NODE))
    if not (closed or free or unknown):
        words = _too_few(wanted, [each.name for each in others if not each.why], cluster)
    away = frozenset(each.name for each in closed if each.away)
    healthy = sum(map(unhealthy_volumes.is_healthy, known))
    placed = sum(map(bool, places))
    without = "" if hidden else _fewer(volume, healthy, wanted)
    fewer = "" if away else without
    quoted = f" (Longhorn says {said})" if said else ""
    why = f", as {' and '.join(words)}" if words else ""
    if free and not said:
        why = f", and Longhorn gives no reason for {names([each.name for each in free])}"
    return UnplacedReplica(
        f"no node takes {_missing(wanted, placed)} replicas{quoted}{why}",
        _remedy(volume, closed, free, said, fewer),
        away,
        (unknown and not said) or any(_CORDONED in each.why for each in closed),
        without,
    )


def occupied(volume: Object, leaving: str, cluster: Cluster) -> Sequence[str]:
    """Return the nodes with disks besides one that is emptied, if each has a replica of a volume
    and takes no second one, so that its replica has no place to move to; empty: one may take it.

    A cordoned node with a replica counts, too: it takes no second one when it is back. A volume
    with enough other ones needs no place: Longhorn writes the one that is to follow it already.
    """
    own = volume.at("spec", "replicaSoftAntiAffinity").text
    soft = own == "enabled" or (
        own != "disabled" and unhealthy_volumes.shares_nodes(cluster) is not False
    )
    if soft or unlisted(cluster, LONGHORN_NODE) or unlisted(cluster, LONGHORN_REPLICA):
        return ()
    alive = [
        each
        for each in unhealthy_volumes.replicas(volume, cluster)
        if not (each.deleted or each.at("spec", "failedAt").text)
    ]
    used = {each.at("spec", "nodeID").text for each in alive}
    wanted = volume.at("spec", "numberOfReplicas").integer or 0
    if len(used - {leaving, "", None}) >= wanted:
        return ()
    others = [each.name for each in _nodes(cluster) if each.name != leaving]
    return others if used.issuperset(others) else ()


def _too_few(wanted: int, unfit: Sequence[str], cluster: Cluster) -> list[str]:
    """Return why no node is a candidate; empty: not known."""
    few = unhealthy_volumes.no_place(wanted, cluster)
    if few.startswith("only "):
        return [few]
    return [f"the tags or disks of {names(unfit)} do not suit it"] if unfit else []


def _missing(wanted: int, placed: int) -> str:
    if placed == wanted - 1:
        return f"the last of its {wanted}"
    more = str(wanted - placed) if 0 < placed < wanted else "a further one"
    return f"{more} of its {wanted}"


def _remedy(
    volume: Object,
    closed: Sequence[_StorageNode],
    free: Sequence[_StorageNode],
    said: str,
    fewer: str,
) -> str:
    further = fewer and f"or {fewer}"
    if closed:
        node, first = closed[0].node, closed[0]
        see = about("describe", node, LONGHORN_NODE)
        if first.opens:
            data = {"spec": {"allowScheduling": True}}
            see = merge_patch(LONGHORN_NODE, node.name, node.namespace, data)
        words = first.step if first.opens else "; or ".join(filter(None, (first.step, _FURTHER)))
        return typed(words, see, further)
    if free and said in ("", _NO_ROOM):
        on = names([each.name for each in free])
        check = f"see that the zone, the tags and the disks of {on} suit it"
        words = f"make room on the disks of {on}, or {_FURTHER}" if said else check
        return typed(words, about("describe", free[0].node, LONGHORN_NODE), further)
    other = fewer or "set numberOfReplicas to the number of nodes with disks"
    edit = about("edit", volume, LONGHORN_VOLUME)
    return f"{_FURTHER} for it; or {typed(other.partition(' (kubectl')[0], edit)}"


def _fewer(volume: Object, healthy: int, wanted: int) -> str:
    """Return how a volume gets healthy with the replicas that it has; empty: it would not be
    safe, or Longhorn does not take that now.
    """
    patch = unhealthy_volumes.fewer(volume, healthy, wanted)
    return f"as a decision, set its numberOfReplicas to {healthy} ({patch})" if patch else ""


def _fits(each: _StorageNode, volume: Object) -> bool:
    """Return whether the tags of a node and the type and tags of a disk of it suit a volume."""
    spec = volume["spec"]
    kind = "block" if spec["dataEngine"].text == "v2" else "filesystem"
    return _has_tags(each.node["spec"], spec["nodeSelector"]) and any(
        disk["diskType"].text in (None, "", kind) and _has_tags(disk, spec["diskSelector"])
        for disk in each.disks
    )


def _has_tags(place: Field, selector: Field) -> bool:
    tags = {each.text for each in place["tags"].items()}
    return tags.issuperset(each.text for each in selector.items())


@cached
def _nodes(cluster: Cluster) -> Sequence[_StorageNode]:
    """Return the nodes that have a disk for replicas."""
    known = sorted(cluster.known(LONGHORN_NODE), key=lambda each: each.name)
    return [_state(node) for node in known if node.at("spec", "disks").map]


def _state(node: Object) -> _StorageNode:
    spec, name = node["spec"], node.name
    every = {disk: _of_disk(node, disk) for disk in sorted(spec["disks"].map)}
    usable = [disk for disk, why in every.items() if not why]
    disks = [spec["disks"][disk] for disk in usable or every]
    later = f"let {name} take replicas again when that is over"
    if node.deleted:
        return _StorageNode(node, disks, "is being deleted", away=True)
    if spec["evictionRequested"].boolean:
        return _StorageNode(node, disks, "is being emptied (evictionRequested)", later, away=True)
    for kind in ("Ready", "Schedulable"):
        said = node.condition(kind)
        if said["status"].text == "False":
            why = f"is not {kind.lower()}{_reason(said, ' ({})')}"
            step = later if kind == "Schedulable" else f"bring {name} back"
            return _StorageNode(node, disks, why, step, away=True)
    closed = "takes none (spec.allowScheduling is false)"
    if usable:
        opens = spec["allowScheduling"].boolean is False
        step = f"let Longhorn place replicas on {name} again, unless that is on purpose"
        return _StorageNode(node, disks, closed if opens else "", step, opens=opens)
    which = names([f"{disk} {why}" for disk, why in every.items()], 2 * _LONGEST)
    away = all(_EMPTIED in why for why in every.values())
    step = later if away else f"end that on {name}"
    return _StorageNode(node, disks, f"has no disk for it ({which})", step, away=away)


_EMPTIED: Final = "is being emptied"


def _of_disk(node: Object, name: str) -> str:
    """Return why a disk takes no replica; empty: it may take one."""
    spec, status = node.at("spec", "disks", name), node.at("status", "diskStatus", name)
    if spec["evictionRequested"].boolean:
        return _EMPTIED
    if spec["allowScheduling"].boolean is False:
        return "has allowScheduling false"
    said = next((each for each in status["conditions"].items() if _is_bad(each)), None)
    return "" if said is None else f"is not schedulable{_reason(said, ': {}')}"


def _is_bad(condition: Field) -> bool:
    return condition["type"].text == "Schedulable" and condition["status"].text == "False"


def _reason(condition: Field, form: str) -> str:
    reason = condition["reason"].text
    return form.format(reason) if reason else ""
