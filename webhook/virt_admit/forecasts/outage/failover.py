"""Whether a VM takes the room that others need after the loss of a node.

Only what is certain is said.

The sum of free room decides first. Where the sum suffices, the pieces may still be too small: then
a VM may fit on so few nodes that it has no second one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Final, NamedTuple

from virt_admit.forecasts.outage import failover_demand
from virt_admit.forecasts.outage.failover_demand import RoomDemand
from virt_admit.forecasts.outage.failover_room import Room, RoomLoss
from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, check_time
from virt_admit.model.kubernetes.kinds import (
    CLUSTER_AUTOSCALER,
    KARPENTER_NODE_POOL,
    MACHINE_AUTOSCALER,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.scheduler import volumes
from virt_admit.model.scheduler.ledger import Role, Shape
from virt_admit.model.scheduler.resources import CPU, MEMORY, PODS, Resources, add
from virt_admit.model.scheduler.room_totals import RoomView

_AUTOSCALERS: Final = (CLUSTER_AUTOSCALER, MACHINE_AUTOSCALER, KARPENTER_NODE_POOL)
READS: Final[Reads] = union(failover_demand.READS, dict.fromkeys(_AUTOSCALERS, NAME))

_MOST_LOSSES: Final = 8
"""The losses whose VMs are looked at one by one, the heaviest first."""
_FIRST: Final = (MEMORY, CPU, PODS)


class Shortage(NamedTuple):
    """A certain shortage after a loss, once a demand is met."""

    resource: str
    missing: int
    room: int
    """What could start before the loss leaves VMs without room; negative: it does already."""
    loss: RoomLoss | None
    """None: less than the reserve stays free."""
    crosses: bool
    """Whether it was enough before."""
    seen: bool = True
    """Whether that holds without VMs that are not on a node yet."""


def shortage(
    room: Room,
    asked: RoomDemand,
    ahead: Resources,
    tolerance: Tolerance,
    cluster: Cluster,
    *,
    everything: bool = False,
) -> Shortage | None:
    """Return the first resource that is certainly short after a loss once a demand is met; None:
    none is.

    Args:
        room: the room of the cluster.
        asked: the demand.
        ahead: what other new VMs take first.
        tolerance: the losses that count.
        cluster: for the VMs of nodes that would be lost.
        everything: whether other pods need a new place too.

    Raises:
        Unseen: a node does not report what it offers.
    """
    view = asked.view._replace(everything=True) if everything else asked.view
    if room.number(view) < 2:
        return None
    pending = room.pending
    margins = {
        key: wanted + ahead.get(key, 0) + pending.get(key, 0)
        for key, wanted in asked.requests.items()
    }
    tight = room.tight(margins, tolerance, view)
    found = [
        each
        for resource in _in_order(tight)
        if (each := _short_of(resource, room, asked, ahead, tolerance, cluster, view)) is not None
    ]
    return next((each for each in found if each.crosses), found[0] if found else None)


def _in_order(resources: Collection[str]) -> list[str]:
    return sorted(
        resources, key=lambda each: (_FIRST.index(each) if each in _FIRST else len(_FIRST), each)
    )


def _short_of(
    resource: str,
    room: Room,
    asked: RoomDemand,
    ahead: Resources,
    tolerance: Tolerance,
    cluster: Cluster,
    view: RoomView,
) -> Shortage | None:
    wanted = asked.requests[resource]
    before = ahead.get(resource, 0)
    pending = room.pending.get(resource, 0)
    margin = wanted + before + pending
    slacks = sorted(
        _slacks(resource, room, margin, tolerance, cluster, view), key=lambda each: each[0]
    )
    if slacks and not asked.returns:  # on the node that is lost it takes nothing from others
        slacks = [each for each in slacks if each[1] is None] or slacks[1:]
    if not slacks:
        return None
    slack, loss = slacks[0]
    left = slack - before
    seen = left >= 0 > left - wanted
    crosses = seen or left - pending >= 0 > left - pending - wanted
    counted = 0 if seen else pending
    return Shortage(resource, wanted + counted - left, left - counted, loss, crosses, seen)


def _slacks(
    resource: str, room: Room, margin: int, tolerance: Tolerance, cluster: Cluster, view: RoomView
) -> Iterator[tuple[int, RoomLoss | None]]:
    """Yield for the losses after which less than the margin is certainly free, how much that is."""
    free = room.free(resource, view)
    if tolerance.reserve > 0 and free - room.reserve(resource, tolerance, view) < margin:
        yield free - room.reserve(resource, tolerance, view), None
    for number, (weight, loss) in enumerate(room.losses(resource, tolerance, view)):
        if free - weight >= margin or number >= _MOST_LOSSES:
            return
        slack = free - weight + bound(room, loss, cluster).get(resource, 0)
        if slack < margin:
            yield slack, loss


def bound(room: Room, loss: RoomLoss, cluster: Cluster) -> dict[str, int]:
    """Return what VMs on lost nodes request that no other node can ever run: they wait for their
    node and need no room.

    VMs of which that cannot be determined count as such.
    """
    total: dict[str, int] = {}
    for node in loss.nodes:
        for namespace, name, shape in _returning_on(room, node):
            check_time()
            if not _has_other_node(namespace, name, loss, cluster):
                add(total, {**dict(shape.requests), PODS: 1})
    return total


def _returning_on(room: Room, node: str) -> Iterator[tuple[str, str, Shape]]:
    """Yield namespace, name and shape of the VMIs on a node that start again elsewhere."""
    yield from room.vms.returning_on(frozenset((node,)))
    yield from ((*key, shape) for key, (where, shape) in room.computed.items() if where == node)


def _has_other_node(namespace: str, name: str, loss: RoomLoss, cluster: Cluster) -> bool:
    """Return whether a node that is not lost may certainly run a VM, whatever is free there."""
    try:
        vmi = cluster.get(VMI, namespace, name)
        return vmi is not None and next(_other_nodes(vmi, loss, cluster), None) is not None
    except Unseen:
        return False


def _other_nodes(vmi: Object, loss: RoomLoss, cluster: Cluster) -> Iterator[str]:
    given = expand(vmi, cluster)
    claims = [
        volumes.claim(cluster, vmi.namespace, claim)
        for claim in launcher_pod.all_claims(given.spec)
    ]
    for host in permanent_constraints.hosts(given, cluster):
        unmounted = (
            claim for claim in claims if claim.refusal(host.name, host.labels, moment=False)
        )
        if host.name not in loss.nodes and not host.refusal and next(unmounted, None) is None:
            yield host.name


def grows(cluster: Cluster) -> bool:
    """Return whether an autoscaler may add nodes, or whether that cannot be determined."""
    try:
        return any(next(iter(cluster.list(kind)), None) is not None for kind in _AUTOSCALERS)
    except Unseen:
        return True


# --- the pieces of free room ----------------------------------------------------------------------


class OnlyPlaces(NamedTuple):
    """A VM has room on few nodes, and each of them is the only one for it."""

    nodes: tuple[str, ...]
    other: str
    """The node on which the least is missing; empty: there is none."""
    missing: int
    """Bytes of memory missing there."""


def only_places(room: Room, asked: RoomDemand, cluster: Cluster) -> OnlyPlaces | None:
    """Return the nodes with room for a new VM,
    if the loss of each of them certainly leaves one VM without memory.

    Raises:
        Unseen: a node does not report what it offers.
    """
    wanted = asked.requests.get(MEMORY, 0)
    if asked.number != 1 or wanted <= 0 or room.has_other_places(wanted, asked.view):
        return None
    places = _known_places(room, asked)
    if not places:
        return None
    memory = room.amounts(MEMORY, asked.view)
    slots = sum(each.free // wanted for each in memory.values())
    for name in sorted(places, key=lambda name: -memory[name].free):
        if not room.ledger.nodes[name].can_be_lost:
            return None
        elsewhere = slots - memory[name].free // wanted
        if elsewhere > _at_most_as_large(room, name, wanted) or elsewhere != as_large(
            room, name, wanted, cluster
        ):
            return None
    if not asked.returns:
        return None
    others = sorted(
        (wanted - each.free, name) for name, each in memory.items() if name not in places
    )
    missing, other = next(((lack, name) for lack, name in others if lack > 0), (0, ""))
    return OnlyPlaces(tuple(sorted(places)), other, missing)


def _known_places(room: Room, asked: RoomDemand) -> list[str]:
    """Return the nodes with room, computed once for VMs of one size:
    nothing else is as costly in a full cluster.
    """
    known: dict[Hashable, list[str]] = room.memo.setdefault(_places, {})
    key = tuple(asked.requests.items()), asked.view
    if key not in known:
        if len(known) >= _MOST_SIZES:
            known.clear()
        known[key] = _places(room, asked)
    return known[key]


_MOST_SIZES: Final = 256


def _places(room: Room, asked: RoomDemand) -> list[str]:
    """Return the nodes with room for a new VM.

    Empty also if there are so many that the loss of one matters to no VM.
    """
    wanted, asked_for = asked.requests[MEMORY], tuple(asked.requests.items())
    places: list[str] = []
    most = 0
    for name, each in room.by_node(asked.view).items():
        if (
            MEMORY in each
            and each[MEMORY].free >= wanted
            and all(key in each and each[key].free >= amount for key, amount in asked_for)
        ):
            if not places:
                most = _at_most_as_large(room, name, wanted)
            elif len(places) > most:  # each of the others has a place for a VM of the first one
                return []
            places.append(name)
    return places


def _at_most_as_large(room: Room, node: str, memory: int) -> int:
    """Return how many VMs of a node start again with so much memory, without a look at each."""
    return sum(
        number
        for shape, number in room.ledger.held(node).items()
        if shape.role is Role.RETURNS and dict(shape.requests).get(MEMORY, 0) >= memory
    )


def as_large(
    room: Room, node: str, memory: int, cluster: Cluster, loss: RoomLoss | None = None
) -> int:
    """Return how many VMs of a node certainly need as much memory on another one after its loss."""
    lost = loss or RoomLoss(frozenset((node,)))
    return sum(
        dict(shape.requests).get(MEMORY, 0) >= memory
        and _has_other_node(namespace, name, lost, cluster)
        for namespace, name, shape in _returning_on(room, node)
    )
