"""The report of ``virt-admit outage``: what its JSON says, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from virt_admit.forecasts.outage import room_left
from virt_admit.forecasts.outage.health_actors import Actor
from virt_admit.forecasts.outage.lost_vms import LostVm
from virt_admit.forecasts.outage.outages import Outage, Outages, Question
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.outage.time_parts import Part, Seconds
from virt_admit.reports.values import UNLESS_GIVEN


@dataclass(frozen=True, slots=True)
class AskedLoss:
    """The question: one of these keys."""

    nodes: tuple[str, ...] | None = field(default=None, metadata=UNLESS_GIVEN)
    zone: str | None = field(default=None, metadata=UNLESS_GIVEN)
    worst: int | None = field(default=None, metadata=UNLESS_GIVEN)


@dataclass(frozen=True, slots=True)
class QuorumLeft:
    """The control-plane nodes of the cluster."""

    nodes: int
    """0: none is in the cluster, and it is assumed outside."""
    left: int
    kept: bool | None


@dataclass(frozen=True, slots=True)
class StartCapacity:
    """What can still start, at most, before the loss leaves VMs without room.

    Negative: short. Null: not known.
    """

    memory: int | None
    """Bytes."""
    cpu: int | None
    """Millicores."""
    pods: int | None


@dataclass(frozen=True, slots=True)
class ShortResource:
    """A resource of which too little is left."""

    resource: str
    amount: int
    """Millicores of CPU, else whole units."""
    vms: int
    """The least number of VMs that find no place."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Whole seconds from the loss, or from now if a lost node is being freed already.

    ``high`` is null: nothing bounds it.
    """

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class LossActor:
    """A health check that watches a lost node."""

    node: str
    check: str
    remediator: str
    at: TimeRange | None
    """When the pods of the node are gone. Null: never, or not known."""
    refuses: str
    """Why it does nothing, or what it waits for; empty: it acts."""


@dataclass(frozen=True, slots=True)
class TimePart:
    """One part of the time line."""

    what: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class VmAfterLoss:
    """What becomes of one VM."""

    namespace: str
    name: str
    node: str
    outcome: LossOutcome
    reason: str
    remedy: str
    to: str | None
    """One possible node. Null: none is certain."""
    at: TimeRange | None
    """When the guest runs again. Null: it does not, or it is not known."""
    by_hand: TimeRange | None
    """The same, if an administrator frees its pod as soon as the loss can be known."""
    parts: tuple[TimePart, ...]
    fresh: bool
    """Whether it comes back without the data of its container, empty or ephemeral disks."""
    candidates: tuple[str, ...] | None
    """Nodes that could take it after the loss, one VM at a time. Null: it cannot be determined."""


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """What the loss of one set of nodes costs."""

    nodes: tuple[str, ...]
    survives: bool | None
    fits: bool | None
    """Whether all VMs that come back find a place at the same time,
    with or without a health check.
    """
    because: tuple[str, ...]
    short: tuple[ShortResource, ...]
    actors: tuple[LossActor, ...]
    vms: tuple[VmAfterLoss, ...]
    """The worst first."""


@dataclass(frozen=True, slots=True)
class OutageReport:
    """Whether a cluster survives a loss of nodes."""

    version: Literal[1]
    question: AskedLoss
    survives: bool | None
    because: tuple[str, ...]
    unseen: tuple[str, ...]
    quorum: QuorumLeft
    capacity: StartCapacity
    outages: tuple[NodeOutage, ...]
    """The worst first. With ``worst``: each set that is not survived for certain,
    else the worst one.
    """


def report(found: Outages) -> OutageReport:
    """Return the report of an answer."""
    amounts = found.capacity
    return OutageReport(
        1,
        _question(found.question),
        found.survives,
        found.because,
        found.unseen,
        QuorumLeft(*found.quorum),
        StartCapacity(amounts["memory"], amounts["cpu"], amounts["pods"]),
        tuple(map(of_loss, found.outages)),
    )


def _question(question: Question) -> AskedLoss:
    return AskedLoss(question.nodes or None, question.zone, question.worst)


def of_loss(one: Outage) -> NodeOutage:
    """Return the entry of one set of nodes."""
    return NodeOutage(
        one.nodes,
        one.survives,
        one.room.fits,
        one.because,
        tuple(ShortResource(*short) for short in one.room.short),
        tuple(map(_actor, one.actors)),
        tuple(vm(each, one) for each in one.vms),
    )


def _actor(actor: Actor) -> LossActor:
    why = actor.refuses or actor.waits
    return LossActor(actor.node, actor.check, actor.remediator, _range(actor.at), why)


def _range(found: Seconds | None) -> TimeRange | None:
    return None if found is None else TimeRange(*found)


def _part(part: Part) -> TimePart:
    return TimePart(part.what, part.low, part.high)


def vm(lost: LostVm, one: Outage) -> VmAfterLoss:
    """Return the entry of one VM."""
    certain: tuple[str, ...] | None = ()
    if lost.returning is not None:
        certain = room_left.target(lost.returning, one.loss).placement.certain
    return VmAfterLoss(
        lost.vmi.namespace,
        lost.vmi.name,
        lost.node,
        lost.outcome,
        lost.reason,
        lost.remedy,
        lost.to,
        _range(lost.at),
        _range(lost.by_hand),
        tuple(map(_part, lost.parts)),
        lost.fresh,
        certain,
    )
