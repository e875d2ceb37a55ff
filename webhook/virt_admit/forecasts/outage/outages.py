"""Whether a cluster survives the loss of named nodes, of a zone, or of any N nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.drain import launcher_pods, pod_evictions, selection
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.endless import silent_drains
from virt_admit.forecasts.drain.guests import ending_guests
from virt_admit.forecasts.drain.starting import starting_guests
from virt_admit.forecasts.outage import health_actors, loss, lost_vms, start_capacity, time_parts
from virt_admit.forecasts.outage.checks import check_controllers
from virt_admit.forecasts.outage.control import owner_turns
from virt_admit.forecasts.outage.health_actors import Actor
from virt_admit.forecasts.outage.loss import Loss, Quorum
from virt_admit.forecasts.outage.lost_vms import NOT_BACK, LostVm
from virt_admit.forecasts.outage.restarts import fates
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.outage.room_left import RoomLeft
from virt_admit.forecasts.outage.start_capacity import CAPACITY
from virt_admit.forecasts.outage.storage import lost_storage
from virt_admit.forecasts.outage.storage.lost_storage import Stranded
from virt_admit.forecasts.outage.time_parts import Seconds
from virt_admit.forecasts.placement import candidates, pod_security
from virt_admit.forecasts.remediation import coverage
from virt_admit.forecasts.remediation.unwatched import lonely_agents
from virt_admit.model.in_order import InOrder, first_alone
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, entry, gather
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import count, did_you_mean, names
from virt_admit.model.node_updates.rancher import unpromoted_nodes
from virt_admit.model.remediation import fence_taints
from virt_admit.model.remediation.by_hand import hand_fences
from virt_admit.model.scheduler.resources import MEMORY, PODS, show

READS: Final[Reads] = union(
    coverage.READS,
    check_controllers.READS,
    silent_drains.READS,
    pod_evictions.READS,
    pod_security.READS,
    fates.READS,
    ending_guests.READS,
    lonely_agents.READS,
    owner_turns.READS,
    hand_fences.READS,
    unpromoted_nodes.READS,
    vmis.OWNER_READS,
    {kinds.NODE: ("metadata.annotations",), kinds.PV: ("spec.csi",), kinds.PDB: NAME},
    dict.fromkeys((kinds.CAPI_CLUSTER, kinds.CLUSTER_VERSION), ()),
)
"""The fields that decide on an outage."""

MOST_SETS: Final = 2_000
"""Sets of nodes that ``--worst`` tries."""


class Question(NamedTuple):
    """The nodes that are lost: exactly one of these is given."""

    nodes: tuple[str, ...] = ()
    zone: str | None = None
    worst: int | None = None
    zone_key: str = loss.ZONE


@dataclass(frozen=True, slots=True)
class Outage:
    """What the loss of one set of nodes costs."""

    loss: Loss
    survives: bool | None
    because: tuple[str, ...]
    """Why it does not survive, or why that is not known."""
    vms: tuple[LostVm, ...]
    """The worst first."""
    room: RoomLeft
    actors: tuple[Actor, ...]
    unseen: tuple[str, ...]
    stranded: tuple[Stranded, ...] = ()
    """The VMs of other nodes that lose a disk."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.loss.nodes

    @property
    def quorum(self) -> Quorum:
        return self.loss.quorum

    @property
    def slowest(self) -> Seconds | None:
        """When the last VM runs again. None: no VM restarts."""
        return max(
            (vm.at for vm in self.vms if vm.at is not None), key=time_parts.length, default=None
        )

    @property
    def overcommit(self) -> float:
        """The guest memory of the VMs that start again, as a multiple of what their pods request;
        0: no VM says both.

        Guests on hugepages have memory of their own, which pods request as another resource.
        """
        pods = [
            (vm.vmi, vm.returning.fresh.pod.requests.get(MEMORY, 0))
            for vm in self.vms
            if vm.returning is not None
            and not vm.vmi.at("spec", "domain", "memory", "hugepages").present
        ]
        sizes = [(lost_vms.guest_memory(vmi), requested) for vmi, requested in pods]
        known = [(guest, requested) for guest, requested in sizes if guest and requested]
        if known:
            return sum(guest for guest, _ in known) / sum(requested for _, requested in known)
        return 0.0

    def having(self, *outcomes: LossOutcome) -> tuple[LostVm, ...]:
        """Return the VMs with one of these outcomes."""
        return tuple(vm for vm in self.vms if vm.outcome in outcomes)


@dataclass(frozen=True, slots=True)
class Outages:
    """The answer to one question."""

    question: Question
    survives: bool | None
    because: tuple[str, ...]
    unseen: tuple[str, ...]
    outages: tuple[Outage, ...]
    """The worst first: each set that the cluster does not certainly survive, else the worst one."""
    tried: int
    """The number of sets."""
    total: int
    """The number of sets that the question is about."""
    capacity: dict[str, int | None]
    """What can start before the loss leaves too little; negative: short. None: not known."""

    @property
    def quorum(self) -> Quorum:
        """The control plane after the worst loss."""
        return self.outages[0].quorum if self.outages else Quorum(0, 0, None)


def outages(question: Question, cluster: Cluster, in_order: InOrder = map) -> Outages:
    """Return whether the cluster survives. ``in_order`` does the work on each set of nodes.

    Raises:
        LookupError: a node or the zone does not exist.
    """
    every, unread = loss.every_node(cluster)
    sets, total, complete = _sets(question, cluster)
    if question.nodes:
        # each node once, without the prefixes of kubectl
        question = question._replace(nodes=sets[0])
    work = partial(_try, cluster=cluster, alone=len(sets) == 1)
    tried = sorted(first_alone(in_order, work, sets), key=lambda each: each.badness)
    found = [
        each.outage or outage(each.nodes, cluster)
        for each in tried
        if each.outage or each is tried[0]
    ]
    verdicts = {each.survives for each in found}
    survives = (
        False
        if False in verdicts
        else None
        if None in verdicts or not found or not complete
        else True
    )
    because = tuple(
        dict.fromkeys(why for each in found if each.survives is survives for why in each.because)
    )
    if not complete and survives is not False:
        because = (*because, f"not every set of nodes was tried: {len(tried):,} of {total:,}")
    hidden = (what for each in tried for what in each.unseen)
    unseen = tuple(dict.fromkeys((*_unread(question, every, unread), *hidden)))
    if survives and question.nodes == () and unread:
        survives = None
    left, because = capacity(question, found, cluster), because[:_MOST_CAUSES]
    return Outages(
        question, survives, because, unseen, tuple(found), len(tried), total, capacity=left
    )


class _Tried(NamedTuple):
    """What is kept of a loss until all are compared."""

    nodes: tuple[str, ...]
    badness: tuple[Any, ...]
    unseen: tuple[str, ...]
    outage: Outage | None
    """None: it is survived, as most are. With their VMs they take much memory,
    and one of them at most is shown.
    """


def _try(nodes: tuple[str, ...], cluster: Cluster, *, alone: bool) -> _Tried:
    found = outage(nodes, cluster)
    return _Tried(
        nodes, _badness(found), found.unseen, found if alone or not found.survives else None
    )


_MOST_CAUSES: Final = 20


def _unread(question: Question, every: object, unread: str) -> Iterator[str]:
    if not every:
        yield "the nodes of the cluster: none is known"
    elif unread and not question.nodes:
        yield unread


def _sets(question: Question, cluster: Cluster) -> tuple[list[tuple[str, ...]], int, bool]:
    """Return the sets of nodes to try, how many there are, and whether all of them are tried."""
    if question.nodes:
        query = selection.NodeQuery(question.nodes)
        return [tuple(sorted(selection.select(query, cluster).names))], 1, True
    if question.zone is not None:
        return [_zone(question.zone, question.zone_key, cluster)], 1, True
    every = sorted(
        {*loss.every_node(cluster)[0], *vmis.occupied(cluster)},
        key=lambda name: (-_held(name, cluster), name),
    )
    size = min(question.worst or 1, len(every))
    sets = list(itertools.islice(itertools.combinations(every, size), MOST_SETS)) if size else []
    number = _choose(len(every), size) if size else 0
    return [tuple(sorted(each)) for each in sets], number, number <= MOST_SETS


def _zone(zone: str, key: str, cluster: Cluster) -> tuple[str, ...]:
    found = tuple(loss.of_zone(cluster, zone, key))
    if not found:
        known = loss.zones(cluster, key)
        meant = did_you_mean(zone, list(known)) if known else None
        hint = f"Did you mean {meant}?" if meant else f"The zones are: {names(known) or 'none'}"
        raise LookupError(f"no node has the label {key}={zone}. {hint}")
    return found


def _held(name: str, cluster: Cluster) -> int:
    """Return the memory that the pods of a node request: the fullest nodes are tried first."""
    return candidates.scheduler(cluster).state.used.get(name, {}).get(MEMORY, 0)


def _choose(every: int, size: int) -> int:
    found = 1
    for index in range(size):
        found = found * (every - index) // (index + 1)
    return found


# --- one loss -------------------------------------------------------------------------------------


def outage(nodes: Iterable[str], cluster: Cluster) -> Outage:
    """Return what the loss of these nodes costs."""
    lost = Loss(tuple(sorted(nodes)), cluster)
    watched = {name: health_actors.coverage(name, lost) for name in lost.nodes}
    found = lost_vms.lost_vms(lost, watched)
    rows = tuple(sorted(found.vms, key=_rank))
    pods = (
        pod
        for name in lost.nodes
        for pod in entry(cluster, evicted_pods.by_node, name) or ()
        if starting_guests.of_pod(pod, cluster) is None
    )
    unread = (*cluster.cached(_unread_kinds), *launcher_pods.unknown_guests(pods, cluster))
    doubts = [what for vm in rows for what in vm.unseen]
    doubts += found.room.unseen if found.room.fits is not True else ()
    room = found.room
    if room.fits and unread:
        room = replace(room, fits=None, because="there may be more VMs or pods than are known")
    stranded = lost_storage.stranded(lost)
    survives, because = _verdict(lost, rows, room, unread, stranded)
    unseen = tuple(dict.fromkeys((*unread, *doubts)))
    actors = tuple(actor for name in lost.nodes for actor in watched[name].actors)
    # without what was derived: 500 losses would keep 500 copies of the cluster
    plain = Loss(lost.nodes, cluster)
    return Outage(plain, survives, because, rows, room, actors, unseen, stranded)


def _verdict(
    lost: Loss,
    rows: Sequence[LostVm],
    room: RoomLeft,
    unread: Sequence[str],
    stranded: Sequence[Stranded],
) -> tuple[bool | None, tuple[str, ...]]:
    causes = [*_no(lost, rows, room), *_losing(stranded, certain=True)]
    if causes:
        return False, tuple(causes)
    doubts = [*_perhaps(lost, rows, room), *_losing(stranded, certain=False)]
    if doubts or unread:
        return None, tuple(
            dict.fromkeys((*doubts, *(f"not all could be read: {what}" for what in unread)))
        )
    return True, ()


def _no(lost: Loss, rows: Sequence[LostVm], room: RoomLeft) -> Iterator[str]:
    if lost.stopped:
        held = unpromoted_nodes.of_loss(lost.lost, lost.cluster)
        why = f". {held.reason}" if held is not None else ""
        yield f"{lost.stopped}, no VM restarts and no health check acts{why}"
    if room.fits is False:
        yield "; ".join((room.because, *_fenced(lost)))
    twice = [vm for vm in rows if vm.twice]
    if twice:
        both = f"{count(len(twice), 'VM')} {'runs' if len(twice) == 1 else 'run'} twice"
        yield f"{both}, with the same disks, if the node is not off but cut off: {twice[0].twice}"
    for outcome in NOT_BACK:
        some = [vm for vm in rows if vm.outcome is outcome]
        said = (
            lost.stopped
            if outcome is LossOutcome.NEVER
            else outcome is LossOutcome.ROOM and room.fits is False
        )
        if some and not said:
            verb = (
                str(outcome)
                if len(some) == 1
                else str(outcome).replace("restarts", "restart").replace("waits", "wait")
            )
            are = {
                "lost": "is lost" if len(some) == 1 else "are lost",
                "never restart": "never restart",
            }.get(verb, verb)
            yield f"{count(len(some), 'VM')} {are}: {_common([vm.reason for vm in some])}"


def _common(reasons: Sequence[str]) -> str:
    """Return the reason with which all begin, else the first one."""
    shared = (each for each in reasons if all(other.startswith(each) for other in reasons))
    return next(shared, reasons[0])


def _fenced(lost: Loss) -> Iterator[str]:
    """Yield which nodes that are left would have room if their remediation had finished."""
    found = fence_taints.known(lost.cluster)
    yield from (f"{name} {found[name].reason}" for name in sorted(found) if name not in lost.nodes)


def _perhaps(lost: Loss, rows: Sequence[LostVm], room: RoomLeft) -> Iterator[str]:
    if lost.quorum_doubt:
        yield lost.quorum_doubt
    if room.fits is None:
        yield room.because
    unknown = [vm for vm in rows if vm.outcome is LossOutcome.UNKNOWN]
    if unknown:
        yield (
            f"the outcome for {count(len(unknown), 'VM')} cannot be determined: {unknown[0].reason}"
        )


def _losing(stranded: Sequence[Stranded], *, certain: bool) -> Iterator[str]:
    """Yield that VMs of nodes that go on lose a disk."""
    some = [(disk, lost) for disk, lost in stranded if lost.certain is certain]
    if some:
        disk, lost = some[0]
        who = (
            f"{disk.vmi.full_name} on {disk.node}"
            if len(some) == 1
            else f"{count(len(some), 'VM')} on other nodes"
        )
        its = "its disk" if len(some) == 1 else "their disks"
        yield f"{who} {'cannot' if certain else 'may not be able to'} use {its}: {lost.reason}"


def _unread_kinds(cluster: Cluster) -> tuple[str, ...]:
    """Return the kinds of which more objects may exist, although a yes rests on all of them."""
    found = (*(gather(cluster.list(kind))[1] for kind in (NODE, POD)), vmis.unread(cluster))
    return tuple(dict.fromkeys(what for what in found if what))


_WORST: Final = {outcome: rank for rank, outcome in enumerate(LossOutcome)}


def _rank(vm: LostVm) -> tuple[int, int, str]:
    at = vm.at
    return _WORST[vm.outcome], -(at.low if at is not None else 0), vm.vmi.full_name


def _badness(found: Outage) -> tuple[int, int, int, tuple[bool, int, int], tuple[str, ...]]:
    """Return a key that sorts the worst loss first.

    By answer, then VMs that do not come back, then missing memory, then the time until the last VM
    restarts.
    """
    verdict = {False: 0, None: 1, True: 2}[found.survives]
    missing = sum(short.amount for short in found.room.short if short.resource == MEMORY)
    bounded, high, low = time_parts.length(found.slowest)
    slowness = not bounded, -high, -low
    down = len(found.having(*NOT_BACK, LossOutcome.UNKNOWN))
    return verdict, -down, -missing, slowness, found.nodes


# --- what can still start -------------------------------------------------------------------------


def capacity(
    question: Question, found: Sequence[Outage], cluster: Cluster
) -> dict[str, int | None]:
    """Return what can still start at most, by sum, until the loss leaves VMs without room.

    None: not known.
    """
    sums = None if cluster.cached(_unread_kinds) else start_capacity.host_sums(cluster)
    if sums is None:
        return dict.fromkeys(CAPACITY)
    if question.worst is not None:
        return {resource: sums.left_after_worst(resource, question.worst) for resource in CAPACITY}
    lost = found[0].nodes if found else ()
    return {resource: sums.left(resource, lost) for resource in CAPACITY}


def amount(resource: str, value: int) -> str:
    """Return an amount for people: ``14Gi of memory``, ``3 pods``."""
    if resource == PODS:
        return f"{show(resource, value)} {resource}"
    return f"{show(resource, value)} of {resource}"
