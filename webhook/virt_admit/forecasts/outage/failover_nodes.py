"""The node or zone whose loss leaves the most VMs without room,
as far as that is certain without placing each VM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from virt_admit.forecasts.outage import failover, failover_room
from virt_admit.forecasts.outage.failover_room import Room, RoomLoss
from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.model.kubernetes.cluster import Cluster, keep
from virt_admit.model.scheduler.ledger import Role
from virt_admit.model.scheduler.resources import CPU, MEMORY
from virt_admit.model.scheduler.room_totals import RoomView


class WorstLoss(NamedTuple):
    """A loss that certainly leaves VMs without room."""

    loss: RoomLoss
    resource: str
    needed: int
    free: int
    """On the nodes that are left: in sum, or, for a size, in pieces of that size."""
    size: int = 0
    """The size of the VMs of which some find no node although the sum suffices; 0: it is short."""
    vms: int = 0
    """The VMs of this size or larger on the lost nodes."""
    places: int = 0
    """The places of this size on the others."""


def worst(
    room: Room, tolerance: Tolerance, cluster: Cluster, *, everything: bool = False
) -> WorstLoss | None:
    """Return the loss with the largest shortage; None: no loss certainly leaves VMs without room.

    Raises:
        Unseen: a node does not report what it offers.
    """
    view = RoomView(everything=everything)
    if room.number(view) < 2:
        return None
    short = sorted(
        _short(room, tolerance, cluster, view),
        key=lambda each: (each.free - each.needed, str(each.loss)),
    )
    for resource in dict.fromkeys((MEMORY, CPU, *(each.resource for each in short))):
        found = [each for each in short if each.resource == resource]
        if found:
            return found[0]
    return next(_in_pieces(room, tolerance, cluster, view), None)


def _short(
    room: Room, tolerance: Tolerance, cluster: Cluster, view: RoomView
) -> Iterator[WorstLoss]:
    """Yield the losses after which less is free than VMs need together."""
    for resource in _needed(room):
        free = room.free(resource, view)
        for weight, loss in room.losses(resource, tolerance, view):
            if weight <= free:
                break
            amounts = room.amounts(resource, view)
            left = free - sum(amounts[name].free for name in loss.nodes)
            needed = weight - (free - left) - failover.bound(room, loss, cluster).get(resource, 0)
            if needed > left:
                yield WorstLoss(loss, resource, needed, left)


def _needed(room: Room) -> list[str]:
    """Return the resources that VMs which start again ask for."""
    sums = (room.ledger.sums(node).by_role for node in room.ledger.nodes)
    return sorted({name for by_role in sums for name in by_role.get(Role.RETURNS, {})})


def _in_pieces(
    room: Room, tolerance: Tolerance, cluster: Cluster, view: RoomView
) -> Iterator[WorstLoss]:
    """Yield the losses after which the free memory suffices, but not in pieces as large as the VMs,
    the worst first.
    """
    memory = room.amounts(MEMORY, view)
    found = []
    for weight, loss in room.losses(MEMORY, tolerance, view):
        sizes = sorted(_sizes(room, loss), reverse=True)
        for number, size in enumerate(sizes, 1):
            if number < len(sizes) and sizes[number] == size:
                continue
            places = sum(
                each.free // size for name, each in memory.items() if name not in loss.nodes
            )
            if number > places:
                moving = sum(
                    failover.as_large(room, name, size, cluster, loss) for name in loss.nodes
                )
                if moving > places:
                    free = sum(each.free for name, each in memory.items() if name not in loss.nodes)
                    short = WorstLoss(loss, MEMORY, weight, free, size, moving, places)
                    found.append((places - moving, short))
                    break
    yield from (each for _, each in sorted(found, key=lambda each: (each[0], str(each[1].loss))))


def _sizes(room: Room, loss: RoomLoss) -> Iterator[int]:
    """Yield the memory of each VM of the lost nodes that starts again."""
    for node in loss.nodes:
        for shape, number in room.ledger.held(node).items():
            size = dict(shape.requests).get(MEMORY, 0)
            if shape.role is Role.RETURNS and size:
                yield from (size for _ in range(number))


def worst_now(
    tolerance: Tolerance, cluster: Cluster, *, everything: bool = False
) -> WorstLoss | None:
    """Return the worst loss as the cluster is now. Most changes leave it equal.

    Raises:
        Unseen: the room of the cluster cannot be determined.
    """

    def find(cluster: Cluster) -> WorstLoss | None:
        return cached_worst(tolerance, cluster, failover_room.room(cluster), everything=everything)

    return keep(cluster, (worst_now, tolerance, everything), find)


def cached_worst(
    tolerance: Tolerance, cluster: Cluster, room: Room, *, everything: bool = False
) -> WorstLoss | None:
    """Return ``worst``, computed once for each state of the cluster."""
    key = "worst", tolerance, everything
    if key not in room.memo:
        room.memo[key] = worst(room, tolerance, cluster, everything=everything)
    found: WorstLoss | None = room.memo[key]
    return found
