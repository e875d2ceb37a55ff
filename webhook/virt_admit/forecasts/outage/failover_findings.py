"""What is said about a VM that takes the room that others need after the loss of a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from virt_admit.forecasts.outage import (
    failover,
    failover_demand,
    failover_remedy,
    failover_room,
    recent_starts,
)
from virt_admit.forecasts.outage.failover import Shortage
from virt_admit.forecasts.outage.failover_demand import RoomDemand, Run
from virt_admit.forecasts.outage.failover_room import Room
from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.messages import count, names
from virt_admit.model.scheduler.resources import MEMORY, Resources, show
from virt_admit.rule import Action, Path


class Wanted(NamedTuple):
    """What a policy wants to survive, and to hear."""

    tolerance: Tolerance
    everything: bool
    """Whether pods of other controllers need room too."""
    silent: bool
    """Whether nothing is said while the room is short already."""


class FailoverFinding(NamedTuple):
    """One finding of the rule, with its messages from the longest to the shortest."""

    path: Path
    messages: tuple[str, ...]
    value: str
    max_action: Action


def findings(
    obj: Object, old: Object | None, wanted: Wanted, cluster: Cluster
) -> Iterator[FailoverFinding]:
    """Yield what is certainly short once an object runs.

    Args:
        obj: a VM, a pool or a replica set.
        old: its version before the update.
        wanted: what must be survived.
        cluster: what is known.
    """
    asked = failover_demand.demand(obj, old, cluster)
    if asked is None:
        return
    room = failover_room.room(cluster)
    run = failover_demand.run(cluster)
    ahead = run.ahead.get(failover_demand.identity(obj), {}) if run.ahead else {}
    short = failover.shortage(
        room, asked, ahead, wanted.tolerance, cluster, everything=wanted.everything
    )
    early = None
    if short is None or not short.crosses:
        early = _with_recent(obj, old, room, asked, ahead, wanted, cluster)
    found = short if early is None else early
    if found is not None:
        # else another object of the same run has the finding
        if found.crosses or not (wanted.silent or ahead):
            yield FailoverFinding(
                failover_demand.field_of(obj, found.resource, asked).path,
                tuple(_messages(obj, old, found, asked, run, wanted.tolerance, cluster)),
                f"{found.resource} {asked.requests[found.resource]}",
                _strongest(found.crosses, found.seen and early is None, cluster),
            )
    elif not ahead and wanted.tolerance.nodes:
        yield from _only_place(obj, asked, room, cluster)


def _with_recent(
    obj: Object,
    old: Object | None,
    room: Room,
    asked: RoomDemand,
    ahead: Resources,
    wanted: Wanted,
    cluster: Cluster,
) -> Shortage | None:
    """Return the shortage to which VMs lead that were admitted a moment ago and have no pods yet;
    None: they do not.
    """
    recent = failover_demand.ahead_of(obj, old, asked, cluster)
    if not recent:
        return None
    first = recent_starts.together(ahead, recent)
    short = failover.shortage(
        room, asked, first, wanted.tolerance, cluster, everything=wanted.everything
    )
    return short if short is not None and short.crosses else None


def _strongest(crosses: bool, seen: bool, cluster: Cluster) -> Action:
    """Return the strongest action: room may grow where nodes are added, and a VM that is only
    starting may not stay.
    """
    if not crosses or failover.grows(cluster):
        return Action.AUDIT
    return Action.DENY if seen else Action.WARN


def _messages(
    obj: Object,
    old: Object | None,
    short: Shortage,
    asked: RoomDemand,
    run: Run,
    tolerance: Tolerance,
    cluster: Cluster,
) -> Iterator[str]:
    amount = show(short.resource, asked.requests[short.resource])
    missing = f"{show(short.resource, short.missing)} of {short.resource} short"
    see = "see virt-admit outage --worst 1"
    effect = _effect(short, tolerance)
    if not short.crosses:
        yield f"{amount} more: {effect} already, now {missing}. Stop VMs or add a node; {see}."
        yield f"{amount} more: {effect} already. Stop VMs or add a node."
        return
    if len(run.demands) > 1 and run.number:
        yield from _of_the_run(short, run, run.ahead.get(failover_demand.identity(obj), {}), effect)
        return
    value = failover_remedy.largest(obj, old, short, asked, cluster)
    most = (
        f"Use at most {value}{_unit(obj, short, asked)}, stop VMs"
        if value is not None
        else "Stop VMs"
    )
    yield f"{amount} more: once this VM runs, {effect}: {missing}. {most} or add a node; {see}."
    yield f"{amount} more: once this VM runs, {effect}: {missing}. {most} or add a node."
    yield f"{amount} more: {effect}: {missing}. {most} or add a node."


def _effect(short: Shortage, tolerance: Tolerance) -> str:
    if short.loss is None:
        return f"less than the reserve of {tolerance.reserve}% stays free"
    return f"the loss of {names((str(short.loss),), 63)} leaves VMs without room"


def _unit(obj: Object, short: Shortage, asked: RoomDemand) -> str:
    last = str(failover_demand.field_of(obj, short.resource, asked).path[-1])
    return f" {last}" if last in ("replicas", "sockets", "cores") else ""


def _of_the_run(short: Shortage, run: Run, ahead: Resources, effect: str) -> Iterator[str]:
    total = run.total.get(short.resource, 0)
    room = max(0, short.room + ahead.get(short.resource, 0))
    start = run.that_fit(short.resource, room)
    needs = (
        f"the {count(run.number, 'new VM')} of this run need {show(short.resource, total)} of "
        f"{short.resource}"
    )
    remedy = f"Start at most {start} of them" if start else "Stop VMs or add a node first"
    yield f"{needs}, {show(short.resource, room)} can start before {effect}. {remedy}."
    yield f"{needs}, {show(short.resource, room)} can start. {remedy}."


def _only_place(
    obj: Object, asked: RoomDemand, room: Room, cluster: Cluster
) -> Iterator[FailoverFinding]:
    places = failover.only_places(room, asked, cluster)
    if places is None:
        return
    decisive: Field = failover_demand.field_of(obj, MEMORY, asked)
    amount, where = show(MEMORY, asked.requests[MEMORY]), names(places.nodes, 63)
    if len(places.nodes) == 1:
        problem = (
            f"{amount}: only {where} has room for this VM, so it does not restart when {where} is "
            "lost"
        )
    else:
        problem = (
            f"{amount}: only {where} have room for this VM, and the loss of one of them leaves a "
            "VM without room"
        )
    free = (
        f" or free {show(MEMORY, places.missing)} on {places.other}"
        if places.other
        else " or add a node"
    )
    yield FailoverFinding(
        decisive.path,
        (f"{problem}. Make it smaller{free}.", f"{problem}. Make it smaller."),
        f"{MEMORY} {asked.requests[MEMORY]}",
        _strongest(crosses=True, seen=False, cluster=cluster),
    )
