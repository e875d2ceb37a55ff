"""Which VMs ran when the room for the loss of one node ran out: also those that no admission saw,
started by a button.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from virt_admit.forecasts.outage import failover, failover_room
from virt_admit.forecasts.outage.failover_room import Room
from virt_admit.forecasts.outage.tolerance import ONE_NODE
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.scheduler.resources import CPU, MEMORY, PODS

_MOST_LOSSES: Final = 8
"""The losses that are looked at for VMs that are bound to their node, the heaviest first."""


class Reserve(NamedTuple):
    """What is left for one lost node, by sums.

    Cordons and nodes that are not Ready at the moment change nothing.
    """

    left: Mapping[str, tuple[int, str]]
    """By resource what can start before a loss leaves VMs short, negative: it does,
    and the node that is lost.
    """
    running: frozenset[tuple[str, str]]
    """The VMIs, by namespace and name."""


class ReserveCrossing(NamedTuple):
    """The room ran out."""

    resource: str
    missing: int
    node: str
    vms: frozenset[tuple[str, str]]
    """The VMs that began to run since it was enough, by namespace and name."""


def reserve(cluster: Cluster) -> Reserve | None:
    """Return what is left; None: something is unread, there is one node, none of them can be lost,
    as none is Ready, or nodes may be added.
    """
    try:
        room = failover_room.room(cluster)
        if room.number() < 2 or failover.grows(cluster):
            return None
        least = {resource: _least(resource, room, cluster) for resource in (MEMORY, CPU, PODS)}
    except Unseen:
        return None
    left = {resource: found for resource, found in least.items() if found is not None}
    return Reserve(left, frozenset(room.vms.names(VMI))) if left == least else None


def _least(resource: str, room: Room, cluster: Cluster) -> tuple[int, str] | None:
    """Return the least that is left after a loss; None: there is no node to lose."""
    free = room.free(resource) - room.pending.get(resource, 0)
    losses = islice(room.losses(resource, ONE_NODE), _MOST_LOSSES)
    return min(
        (
            (free - weight + failover.bound(room, loss, cluster).get(resource, 0), str(loss))
            for weight, loss in losses
        ),
        default=None,
    )


def crossing(before: Reserve, now: Reserve) -> ReserveCrossing | None:
    """Return that the room ran out between two moments; None: it did not, or it was short."""
    for resource, (left, node) in now.left.items():
        if left < 0 <= before.left[resource][0]:
            return ReserveCrossing(resource, -left, node, now.running - before.running)
    return None
