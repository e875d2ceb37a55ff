"""How long Machines take to become Nodes, and which of them should be Nodes by now.

Source: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller_status.go (the
conditions of a Machine repeat reason and message of its bootstrap configuration and of its
infrastructure).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, more_may_exist
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, MHC, NHC, NODE, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import MINUTE, format_duration
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, cut_middle, names
from virt_admit.model.remediation import (
    bare_metal,
    check_scope,
    health_checks,
    machine_drain,
    machines,
)
from virt_admit.model.remediation.bare_metal import HostShortage
from virt_admit.model.remediation.health_checks import HealthCheck

_FAILED: Final = ("failureReason", "failureMessage")
"""The fields of a failure for good; v1beta2 has them in ``status.deprecated.v1beta1``."""
_ERROR: Final = ("errorReason", "errorMessage")
"""The fields of OpenShift."""
READS: Final[Reads] = union(
    clock.READS,
    machine_nodes.READS,
    {
        CAPI_MACHINE: (
            *("metadata.labels", "metadata.ownerReferences"),
            *(
                "metadata.creationTimestamp",
                "metadata.deletionTimestamp",
                "status.deprecated.v1beta1",
            ),
            *(f"status.{field}" for field in _FAILED),
        ),
        MACHINE: (
            *(
                "metadata.creationTimestamp",
                "metadata.deletionTimestamp",
                "metadata.ownerReferences",
            ),
            *("status.conditions", "status.errorMessage", "status.errorReason", "status.phase"),
        ),
        NODE: ("metadata.creationTimestamp",),
    },
    bare_metal.HOST_READS,
)

SLOW_READS: Final[Reads] = union(
    machine_nodes.READS,
    machines.SELECT_READS,
    dict.fromkeys((MACHINE, CAPI_MACHINE, NODE), ("metadata.creationTimestamp",)),
)
"""The fields that ``too_slow`` reads."""
SHORT_READS: Final[Reads] = union(
    bare_metal.READS, SLOW_READS, dict.fromkeys((MACHINE, CAPI_MACHINE), machines.TURN_FIELDS)
)
"""The fields that ``short_start`` reads."""

_USUAL: Final = timedelta(hours=1)
"""A host of bare metal is inspected, written and booted in less than this."""
_PLAUSIBLE: Final = timedelta(hours=4)
"""A Node that is this much younger than its Machine was not its first one: it was deleted,
and registered again.
"""
_STEPS: Final = (
    *("BootstrapConfigReady", "BootstrapReady", "InfrastructureReady", "NodeReady", "NodeHealthy"),
    "InstanceExists",
)
"""The conditions on the way to a Node, in their order, of both versions of Cluster API,
and the one of OpenShift.
"""
_LONGEST: Final = 200


class OverdueMachine(NamedTuple):
    """A Machine that should be a Node by now."""

    machine: Object
    why: str
    """For how long, and what it waits for, in the words of its conditions."""
    certain: bool
    """False: how long it has waited is not known."""
    shortage: HostShortage | None = None
    """Why it gets no host, which ``why`` says too; None: that is not what it waits for."""


def start_time(machine: Object, cluster: Cluster) -> timedelta | None:
    """Return how long a Machine took to become a Node; None: it has none, or that is not known."""
    node = find(cluster, NODE, "", machine_nodes.node_name(machine, cluster) or "")
    began, ended = (clock.instant(each.created) if each else None for each in (machine, node))
    took = ended - began if began is not None and ended is not None else None
    return took if took is not None and timedelta() < took <= _PLAUSIBLE else None


def start_times(found: Iterable[Object], cluster: Cluster) -> Sequence[timedelta]:
    """Return how long these Machines took to become Nodes, as far as that is known,
    the shortest first.
    """
    return sorted(filter(None, (start_time(machine, cluster) for machine in found)))


class SlowStarts(NamedTuple):
    """Machines that took longer to become Nodes than a health check allows."""

    fastest: int
    """In nanoseconds."""
    slowest: int
    """In nanoseconds."""
    known: int
    """Of how many Machines the time is known."""
    enough: int
    """The time to allow: a quarter more than the slowest took, in full five minutes."""


def too_slow(obj: Object, cluster: Cluster) -> SlowStarts | None:
    """Return that the Machines of a health check start more slowly than it allows.

    None: they do not, or few of them do.

    A Node that was deleted and registered again looks like a slow start, so half of them must be
    slow.

    Raises:
        Unseen: no start is known, and Machines or Nodes could not be read.
    """
    check, selection = health_checks.view(obj), check_scope.selected(obj, cluster)
    allowed = check.known_startup_time() if check.kind is not NHC and not check.handler else None
    if not allowed or allowed < 0:
        return None
    starts = [
        int(took / timedelta(microseconds=1)) * 1000
        for took in start_times(selection.objects, cluster)
    ]
    if not starts:
        selection.demand_all()
        for unseen in more_may_exist(cluster, NODE) if selection else ():
            raise unseen
    late = [took for took in starts if took > allowed]
    if not late or 2 * len(late) < len(starts):
        return None
    return SlowStarts(
        starts[0], starts[-1], len(starts), -(-starts[-1] * 5 // 4 // (5 * MINUTE)) * 5 * MINUTE
    )


# --- too little time ------------------------------------------------------------------------------

_ENOUGH_SEEN: Final = 2
"""One Machine may have been slow for another cause. The second was made because of the first."""


class ShortStart(NamedTuple):
    """A time that is too short for Machines to become Nodes."""

    words: str
    """``10m is too short for bare metal (Metal3Machine) to become a node``."""
    enough: int
    """The time to allow, in nanoseconds."""
    certain: bool
    """Whether every Machine of which it is known took longer."""
    seen: bool = False
    """Whether the check has acted on new Machines again and again, which the words say."""
    may_join: bool = True
    """False: none of these is known to have become a node, so that another cause may keep them."""

    @property
    def doubt(self) -> str:
        """What to do before the time is changed, with a space after; empty: nothing."""
        return "" if self.may_join else "See why none joins; if slow, "


def short_start(
    obj: Object, cluster: Cluster, on_metal: int = bare_metal.ENOUGH
) -> ShortStart | None:
    """Return that the start-up time of a health check is too short for its Machines.

    None: it is not, or it has none.

    Args:
        obj: the health check.
        cluster: the cluster.
        on_metal: the shortest time for bare metal, in nanoseconds.

    Raises:
        Unseen: what decides could not be read.
    """
    check = health_checks.view(obj)
    allowed = check.known_startup_time()
    if allowed is None or allowed <= 0 or check.handler:
        return None
    limit = format_duration(allowed) + ("" if check.startup.present else ", the default,")
    slow, unread = None, None
    try:
        slow = too_slow(obj, cluster)
    except Unseen as unseen:
        unread = unseen
    if slow is not None:
        took = f"machines that take up to {format_duration(slow.slowest)} here"
        words = f"{limit} is too short for {took} to become a node"
        if gone := looped(obj, cluster):
            words = f"{words}: {_acted(check, gone, _late(gone, cluster))}"
        certain = bool(gone) or slow.fastest > allowed
        return ShortStart(words, slow.enough, certain, seen=bool(gone))
    if loop := _loop(obj, allowed, limit, cluster):
        return loop
    if allowed >= on_metal:  # hardly any machine takes longer
        return None
    if why := cut(bare_metal.reason(obj, cluster), 40):
        words = f"{limit} is too short for bare metal ({why}) to become a node"
        least = timedelta(microseconds=allowed / 1000)
        starts = start_times((own := check_scope.selected(obj, cluster)).objects, cluster)
        turn = machines.deleted_in_turn(own.objects, least, least + _SLACK)
        if turn is None and bare_metal.leave_room(starts, own, least, cluster):
            return None
        if turn is not None:
            former, following = turn
            done = f"this check has deleted {former.name} after that time, {following.name} is next"
            words = f"{words}: {done}"
        return ShortStart(words, on_metal, certain=turn is not None, seen=turn is not None)
    if unread is not None:
        raise unread
    return None


def undone(obj: Object, sets: Collection[str], cluster: Cluster) -> list[str]:
    """Return the Machines that a health check of Cluster API has certainly marked because they were
    late; empty: too few.

    One that still exists has a condition. Events tell of the others, as far as they are known.
    Source:
    kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_targets.go#nodeChecks,
    machinehealthcheck_controller.go#patchUnhealthyTargets.

    Args:
        obj: the health check.
        sets: the names of the MachineSets that make the Machines.
        cluster: the cluster.
    """
    selection = check_scope.selected(obj, cluster)
    late = (
        each
        for each in selection.objects
        if machine_drain.condition(each, _JUDGED)["reason"].text == _LATE
    )
    found = {each.name for each in late if _is_made_by(each, sets) and not machines.node_name(each)}
    found |= {each.name for each in _gone(obj, cluster) if each.owner in sets}
    return sorted(found) if len(found) >= _ENOUGH_SEEN else []


def _is_made_by(machine: Object, sets: Collection[str]) -> bool:
    return any(owner["name"].text in sets for owner in machine.metadata["ownerReferences"].items())


class _Gone(NamedTuple):
    """A Machine that was marked when its time was over, by the events about it."""

    name: str
    owner: str
    """The MachineSet that made it."""
    made: datetime
    marked: datetime


def _gone(obj: Object, cluster: Cluster) -> Iterator[_Gone]:
    """Yield the Machines that a health check marked when their time was over."""
    allowed = timedelta(microseconds=(health_checks.view(obj).known_startup_time() or 0) / 1000)
    made = {}
    for event in events.known("MachineSet", "SuccessfulCreate", cluster):
        name = _CREATED.search(event["message"].text or "")
        if name and event.at("involvedObject", "namespace").text == obj.namespace:
            made[name[1]] = _about(event), events.time_of(event)
    for event in events.known("Machine", "MachineMarkedUnhealthy", cluster):
        name_of, ended = _about(event), events.time_of(event)
        owner, begun = made.get(name_of, ("", None))
        by_it = _is_marked_by(obj, name_of, event["message"].text or "")
        if by_it and begun and ended and allowed <= ended - begun < allowed + _SLACK:
            yield _Gone(name_of, owner, begun, ended)


def _about(event: Object) -> str:
    return event.at("involvedObject", "name").text or ""


def _is_marked_by(check: Object, machine: str, words: str) -> bool:
    """Return whether an event says that this check marked a Machine, in the words of Cluster API
    since 1.10 or of an older one (machinehealthcheck_targets.go#string)."""
    newer = f"Machine {check.namespace}/{machine} has been marked as unhealthy by {check.full_name}"
    return words == newer or words.startswith(f"Machine {check.full_name}/{machine}/")


def looped(obj: Object, cluster: Cluster) -> Sequence[str]:
    """Return the Machines that a health check deleted when their time was over, one round after the
    other; empty: that is not known.

    Those of one round may have been slow for another cause.
    """
    if health_checks.view(obj).kind is MHC:
        return _looped_of_openshift(obj, cluster)
    found = list(_gone(obj, cluster))
    ended = min((each.marked for each in found), default=None)
    again = ended is not None and any(each.made >= ended for each in found)
    return sorted(each.name for each in found) if again else []


def _looped_of_openshift(obj: Object, cluster: Cluster) -> Sequence[str]:
    """Return the same for OpenShift, whose MachineSets tell of no new Machine: the next one is made
    after the deletion of the former one.

    The event ends with the Node of the Machine, which is empty here. A Machine that has failed is
    deleted at once, so that its end does not come a start-up time later
    (machinehealthcheck_controller.go#internalRemediation #string #needsRemediation).
    """
    allowed = timedelta(microseconds=(health_checks.view(obj).known_startup_time() or 0) / 1000)
    begin = f"Machine {obj.full_name}/"
    ends: dict[str, datetime] = {}
    for event in events.known("Machine", "MachineDeleted", cluster):
        name, ended = _about(event), events.time_of(event)
        if ended is not None and (event["message"].text or "").startswith(f"{begin}{name}/ "):
            ends[name] = ended
    in_turn = sorted(ends, key=lambda name: (ends[name], name))
    gaps = (ends[later] - ends[name] for name, later in pairwise(in_turn))
    again = allowed > timedelta() and any(allowed <= gap < 2 * allowed + _SLACK for gap in gaps)
    return in_turn if again else []


def _loop(obj: Object, allowed: int, limit: str, cluster: Cluster) -> ShortStart | None:
    """Return that a health check has deleted new Machines in a loop; None: that is not known."""
    gone = looped(obj, cluster)
    if not gone:
        return None
    late = _late(gone, cluster)
    done = _acted(health_checks.view(obj), gone, late)
    words = f"{limit} {'is' if late else 'may be'} too short for a machine to become a node: {done}"
    return ShortStart(words, _MORE * allowed, certain=True, seen=True, may_join=bool(late))


def _late(gone: Sequence[str], cluster: Cluster) -> list[str]:
    """Return the Machines that had joined when they were deleted: their Nodes are there."""
    return [name for name in gone if find(cluster, NODE, "", name) is not None]


def _acted(check: HealthCheck, gone: Sequence[str], late: Sequence[str]) -> str:
    """Return which new Machines a health check has deleted when their time was over."""
    joined = f"; {names(late, 60)} had just joined" if late else ""
    acts = "acted on" if check.template.present else "deleted"
    many = f"{len(gone)} new ones after that time ({names(gone, 60)}{joined})"
    return f"this check has {acts} {many}"


_MORE: Final = 3
"""How much more time to allow than one that no Machine has met."""
_JUDGED, _LATE = "HealthCheckSucceeded", "NodeStartupTimeout"
_CREATED: Final = re.compile(r'^Created machine "?([^"\s]+)"?$')
_SLACK: Final = timedelta(minutes=2)
"""A controller that is busy marks a Machine a little later."""


# --- too much time --------------------------------------------------------------------------------


def failure(machine: Object) -> str:
    """Return why a Machine has failed, in the words of its provider; empty: it has not.

    Cluster API copies it from the infrastructure and never takes it back
    (api/core/v1beta1/machine_types.go#MachineStatus).
    """
    places = (machine["status"], machine.at("status", "deprecated", "v1beta1"))
    said = [
        place[field].text for place in places for field in (*_FAILED, *_ERROR) if place[field].text
    ]
    return cut_middle(": ".join(dict.fromkeys(filter(None, said))), _LONGEST)


@cached
def overdue(cluster: Cluster) -> Sequence[OverdueMachine]:
    """Return the Machines of Cluster API that should be Nodes by now,
    or have failed before they were, by name.
    """
    return list(_overdue(CAPI_MACHINE, cluster))


@cached
def overdue_of_openshift(cluster: Cluster) -> Sequence[OverdueMachine]:
    """Return the Machines of OpenShift that should be Nodes by now,
    or have failed before they were, by name.
    """
    return list(_overdue(MACHINE, cluster))


def described(machine: Object, cluster: Cluster) -> OverdueMachine:
    """Return for how long a Machine has no node, and what it waits for.

    Whether that is too long is not judged.
    """
    age = clock.age(machine, cluster)
    shortage = bare_metal.shortage(machine, cluster)
    lacks = shortage.words if shortage is not None else ""
    return OverdueMachine(machine, _words(machine, age, lacks), age is not None, shortage)


@cached
def without_hosts(cluster: Cluster) -> Sequence[OverdueMachine]:
    """Return the Machines of OpenShift that have no host by their own words, of any age, where none
    is on its way to become available, by name."""
    found = (
        described(each, cluster)
        for each in sorted(cluster.known(MACHINE), key=lambda machine: machine.full_name)
        if not each.deleted and not machines.node_name(each) and failure(each)
    )
    return [each for each in found if each.shortage is not None and each.shortage.lasts]


def is_open(machine: Object, *steps: str) -> bool:
    """Return whether a Machine says of one of these conditions that it is not True."""
    return any(_is_open(machine_drain.condition(machine, step)) for step in steps)


def _overdue(kind: Kind, cluster: Cluster) -> Iterator[OverdueMachine]:
    found = sorted(cluster.known(kind), key=lambda machine: machine.full_name)
    slowest = max(start_times(found, cluster), default=timedelta())
    limit = max(_USUAL, 2 * slowest)
    for machine in found:
        if machine.deleted or machines.node_name(machine):
            continue
        # OpenShift takes the error of a Machine back that is not in the phase Failed
        # (openshift/cluster-api-provider-baremetal: actuator.go#clearInsufficientResourcesError)
        failed = (
            machine.at("status", "phase").text == "Failed"
            if kind is MACHINE
            else bool(failure(machine))
        )
        age = clock.age(machine, cluster)
        if failed or age is None or age > limit:
            yield described(machine, cluster)._replace(certain=failed or age is not None)


def _words(machine: Object, age: timedelta | None, shortage: str) -> str:
    """Return ``Machine fleet/m-1 has no node for 3 h 05: InfrastructureReady is False: NoHost:
    No host found``.
    """
    lasts = "" if age is None else f" for {duration(age)}"
    step = next(
        filter(_is_open, (machine_drain.condition(machine, kind) for kind in _STEPS)), machine["-"]
    )
    judged = machine_drain.condition(machine, _JUDGED)
    # it says more than that a node is missing
    if not step["message"].text and judged["status"].text == "False":
        step = judged
    said = [
        f"{step['type'].text} is {step['status'].text}" if step.present else "",
        step["reason"].text,
        step["message"].text,
    ]
    waits = " ".join(": ".join(filter(None, said)).split())
    words = (failure(machine) or cut_middle(waits, _LONGEST)).rstrip(".")
    return f"Machine {machine.full_name} has no node{lasts}" + "".join(
        f": {each}" for each in (words, shortage) if each
    )


def _is_open(condition: Field) -> bool:
    return condition["status"].text in ("False", "Unknown")
