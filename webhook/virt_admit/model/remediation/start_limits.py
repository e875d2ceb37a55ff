"""Health checks that act on Machines before these can become Nodes: what is expected, and what has been seen."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.messages import cut
from virt_admit.model.remediation import bare_metal, check_scope, health_checks, machine_drain, machine_starts, machines

READS: Final[Reads] = union(bare_metal.READS, machine_starts.SLOW_READS)
"""The fields that ``short_start`` reads."""

_ENOUGH_SEEN: Final = 2
"""One Machine may have been slow for another cause. The second one was made because of the first."""


class ShortStart(NamedTuple):
    """A time that is too short for Machines to become Nodes."""

    words: str
    """``10m is too short for bare metal (Metal3Machine) to become a node``."""
    enough: int
    """The time to allow, in nanoseconds."""
    certain: bool
    """Whether every Machine of which it is known took longer."""


def short_start(obj: Object, cluster: Cluster, on_metal: int = bare_metal.ENOUGH) -> ShortStart | None:
    """Return that the start-up time of a health check is too short for its Machines. None: it is not, or it has none.

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
        slow = machine_starts.too_slow(obj, cluster)
    except Unseen as unseen:
        unread = unseen
    if slow is not None:
        took = f"machines that take up to {format_duration(slow.slowest)} here"
        return ShortStart(f"{limit} is too short for {took} to become a node", slow.enough, slow.fastest > allowed)
    if allowed >= on_metal:  # hardly any machine takes longer
        return None
    if why := cut(bare_metal.reason(obj, cluster), 40):
        return ShortStart(f"{limit} is too short for bare metal ({why}) to become a node", on_metal, certain=False)
    if unread is not None:
        raise unread
    return None


def undone(obj: Object, sets: Collection[str], cluster: Cluster) -> list[str]:
    """Return the Machines that a health check of Cluster API has certainly marked because they were late; empty: too few.

    One that still exists has a condition. Events tell of the others, as far as they are known.
    Source: kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_targets.go#nodeChecks,
    machinehealthcheck_controller.go#patchUnhealthyTargets.

    Args:
        obj: the health check.
        sets: the names of the MachineSets that make the Machines.
        cluster: the cluster.
    """
    selection = check_scope.selected(obj, cluster)
    late = (each for each in selection.objects if machine_drain.condition(each, _JUDGED)["reason"].text == _LATE)
    found = {each.name for each in late if _is_made_by(each, sets) and not machines.node_name(each)}
    found |= set(_gone(obj, sets, cluster))
    return sorted(found) if len(found) >= _ENOUGH_SEEN else []


def _is_made_by(machine: Object, sets: Collection[str]) -> bool:
    return any(owner["name"].text in sets for owner in machine.metadata["ownerReferences"].items())


def _gone(obj: Object, sets: Collection[str], cluster: Cluster) -> Iterator[str]:
    """Yield the Machines that no longer exist, and were marked when their time was over."""
    allowed = timedelta(microseconds=(health_checks.view(obj).known_startup_time() or 0) / 1000)
    made = {}
    for event in events.known("MachineSet", "SuccessfulCreate", cluster):
        name = _CREATED.search(event["message"].text or "")
        if name and event.at("involvedObject", "namespace").text == obj.namespace and _about(event) in sets:
            made[name[1]] = events.time(event)
    for event in events.known("Machine", "MachineMarkedUnhealthy", cluster):
        begun, ended = made.get(_about(event)), events.time(event)
        words = event["message"].text or ""
        by_it = words.endswith(f" by {obj.namespace}/{obj.name}") and words.startswith(f"Machine {obj.namespace}/")
        if by_it and begun and ended and allowed <= ended - begun < allowed + _SLACK:
            yield _about(event)


def _about(event: Object) -> str:
    return event.at("involvedObject", "name").text or ""


_JUDGED, _LATE = "HealthCheckSucceeded", "NodeStartupTimeout"
_CREATED: Final = re.compile(r'^Created machine "?([^"\s]+)"?$')
_SLACK: Final = timedelta(minutes=2)
"""A controller that is busy marks a Machine a little later."""
