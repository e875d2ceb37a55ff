"""Volumes of Longhorn whose rebuilding does not begin, as the nodes have no rebuild slot left.

A replica that is made for a volume with data takes a slot of its node when its process starts, and
gives it back once it is healthy or has failed. A node has as many as the setting says. An engine
takes new replicas only when all of its volume run, so volumes with two new replicas each can hold
the slots for which the others wait, and none of them ends. Releases after 1.12.1 do not wait for
new replicas that never started: their engine takes those that run, which is read here. Sources:
longhorn/longhorn-manager:controller/replica_controller.go#CanStartRebuildingReplica,
:controller/volume_controller.go#openVolumeDependentResources ("wait for all potentially healthy
replicas become running"); https://github.com/longhorn/longhorn/issues/13629.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import timedelta
from itertools import chain
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn import longhorn_copies
from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_ENGINE, LONGHORN_REPLICA, LONGHORN_SETTING
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find_named, grouped
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    clock.READS,
    longhorn_copies.READS,
    {
        LONGHORN_REPLICA: (
            *("metadata.creationTimestamp", "metadata.deletionTimestamp", "spec.desireState"),
            "status.currentState",
        ),
        LONGHORN_ENGINE: ("spec.volumeName", "spec.replicaAddressMap"),
        LONGHORN_SETTING: ("value",),
    },
)
LIMIT: Final = "concurrent-replica-rebuild-per-node-limit"
_DEFAULT: Final = 5
_SETTLED: Final = timedelta(minutes=5)
"""The processes of replicas start within this time."""
_MOST: Final = 4
_FEW: Final = 2 * _DEFAULT
"""Slots of a node that load it little."""


class SlotWait(NamedTuple):
    """Why the rebuilding of volumes does not begin."""

    why: str
    """A clause: ``new replicas hold the rebuild slots of one another …``"""
    remedy: str
    """What lets it begin; empty: it begins by itself."""
    brief: str = ""
    """The same as ``why`` without the names of replicas."""


class _Wait(NamedTuple):
    """A new replica that waits for a slot of its node."""

    replica: Object
    holders: Sequence[Object]
    """The replicas that hold the slots."""

    @property
    def node(self) -> str:
        return _of(self.replica, "nodeID")


def waits(volumes: Sequence[Object], cluster: Cluster) -> SlotWait | None:
    """Return why no rebuilding of these volumes begins; None: nothing of the slots is known to be
    in the way.
    """
    setting = find_named(cluster, LONGHORN_SETTING, LIMIT)
    limit = _number(setting)
    if setting is None or limit is None or unlisted(cluster, LONGHORN_REPLICA):
        return None
    if limit == 0:
        why = f"setting {LIMIT} 0 lets Longhorn rebuild none"
        return SlotWait(why, _raise(setting, _DEFAULT), why)
    every, own = _waiting(cluster), [each.name for each in volumes]
    first = [each for name in own for each in every.get(name, ())]
    if not first:
        return None
    if _endless(cluster).isdisjoint(own):
        held = names([each.name for each in first[0].holders])
        why = f"replica {first[0].replica.name} waits for a rebuild slot of {first[0].node}"
        return SlotWait(f"{why}, which {held} holds ({LIMIT} {limit})", "")
    said, needed = _circle(cluster)
    begin, end = (
        "no rebuilding begins, as new replicas hold the slots of one another",
        f"({LIMIT} {limit})",
    )
    lasts = clock.lasting(first[0].replica.created, cluster)
    back = f"set it back to {limit} once they are rebuilt, as rebuildings load disks and network"
    way = _raise(setting, needed, back, "as a decision, " if needed > _FEW else "")
    return SlotWait(f"{begin}{lasts} {end}: {said}", way, f"{begin} {end}")


@cached
def _circle(cluster: Cluster) -> tuple[str, int]:
    """Return which replicas hold the slots for which others wait without an end, and with how many
    slots of a node none of them waits.
    """
    every = _waiting(cluster)
    circle = [each for name in sorted(_endless(cluster)) for each in every[name]]
    said = [
        f"{names([held.name for held in each.holders])} that of {each.node}, for which "
        f"{each.replica.name} waits"
        for each in circle[:_MOST]
    ]
    more = f" and {len(circle) - _MOST} more" if circle[_MOST:] else ""
    by_place = grouped(circle, lambda each: each.node).values()
    needed = max(len(waiting) + len(waiting[0].holders) for waiting in by_place)
    return f"{', '.join(said)}{more}", needed


def _number(setting: Object | None) -> int | None:
    text = setting["value"].text if setting is not None else None
    return int(text) if text and text.isdecimal() and len(text) < _MOST else None


def _raise(setting: Object, value: int, further: str = "", before: str = "") -> str:
    patch = merge_patch(LONGHORN_SETTING, LIMIT, setting.namespace, {"value": str(value)})
    return typed(f"{before}set {LIMIT} to {value}", patch, further)


@cached
def _waiting(cluster: Cluster) -> Mapping[str, Sequence[_Wait]]:
    """Return the new replicas that wait for a slot, by volume."""
    limit = _number(find_named(cluster, LONGHORN_SETTING, LIMIT)) or 0
    new = [each for each in sorted(cluster.known(LONGHORN_REPLICA), key=_name) if _is_new(each)]
    new = [each for each in new if _has_data(each, cluster)]
    holding = grouped(filter(_runs, new), lambda each: _of(each, "nodeID"))
    found = (
        _Wait(each, holding.get(_of(each, "nodeID"), ())) for each in new if _waits(each, cluster)
    )
    full = (each for each in found if limit and len(each.holders) >= limit)
    return grouped(full, lambda each: _volume(each.replica))


@cached
def _endless(cluster: Cluster) -> Set[str]:
    """Return the volumes that wait for slots which they hold among themselves."""
    if unlisted(cluster, LONGHORN_ENGINE):
        return frozenset()
    limit = _number(find_named(cluster, LONGHORN_SETTING, LIMIT)) or 0
    every, begun = _waiting(cluster), frozenset(_begun(cluster))
    waiting = grouped(chain.from_iterable(every.values()), lambda each: each.node)
    holders = {node: [*map(_volume, own[0].holders)] for node, own in waiting.items()}
    names_of = (each for own in waiting.values() for each in own[0].holders)
    found = set(every) - {_volume(each) for each in names_of if each.name in begun}
    held = {node: sum(each in found for each in own) for node, own in holders.items()}
    places = grouped(((each, node) for node, own in holders.items() for each in own), _first)
    # of each volume, the slots that stay taken as long as the others wait
    taken = {name: sum(held[each.node] >= limit for each in every[name]) for name in found}
    free = [name for name, number in taken.items() if not number]
    while free:
        name = free.pop()
        found.discard(name)
        for _, node in places.get(name, ()):
            held[node] -= 1
            for each in waiting[node] if held[node] == limit - 1 else ():
                own = _volume(each.replica)
                if own in found:
                    taken[own] -= 1
                    free += [] if taken[own] else [own]
    return frozenset(found)


def _first(pair: tuple[str, str]) -> str:
    return pair[0]


def _begun(cluster: Cluster) -> Iterator[str]:
    """Yield the replicas that an engine has taken, so that they are rebuilt or were."""
    for engine in cluster.known(LONGHORN_ENGINE):
        yield from (name for name, _ in engine.at("spec", "replicaAddressMap").entries())


def _is_new(replica: Object) -> bool:
    """Return whether a replica has never been healthy, and has not failed."""
    never = not (_of(replica, "healthyAt") or _of(replica, "failedAt"))
    return never and bool(_of(replica, "nodeID")) and not replica.deleted


def _has_data(replica: Object, cluster: Cluster) -> bool:
    """Return whether the volume of a new replica has a copy from which it is rebuilt: the first
    replicas of a volume need no slot.
    """
    return (replica.namespace, _volume(replica)) in cluster.cached(longhorn_copies.healthy)


def _runs(replica: Object) -> bool:
    return replica.at("status", "currentState").text in ("starting", "running")


def _waits(replica: Object, cluster: Cluster) -> bool:
    is_wanted = _of(replica, "desireState") == "running"
    stands = replica.at("status", "currentState").text == "stopped"
    return is_wanted and stands and clock.has_lasted(replica.created, _SETTLED, cluster)


def _volume(replica: Object) -> str:
    return _of(replica, "volumeName")


def _of(replica: Object, field: str) -> str:
    return replica.at("spec", field).text or ""


def _name(replica: Object) -> str:
    return replica.name
