"""How long Cluster API takes to replace a node, by the Machines of the last roll-outs.

A MachineDeployment makes a new Machine before it deletes an old one, and no node is rebooted.
Machines that are being deleted count: where one more Machine may exist, the next one is created
only after the old one is gone. The time between two Machines is then that of one replacement, drain
included. Source: kubernetes-sigs/cluster-api: core/reconcilers/machinedeployment/mdutil/util.go
#NewMSNewReplicas #TotalMachineSetsReplicaSum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes, machine_pools
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import MACHINE_DEPLOYMENT, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find, grouped
from virt_admit.model.node_updates import machine_rollouts

_ASSUMED: Final = 10
_SET: Final = "cluster.x-k8s.io/set-name"
_LONGEST: Final = timedelta(hours=4)
"""A longer time is one of a repair, or of a Node that became Ready again later."""


class ReplacementTime(NamedTuple):
    """How many minutes the last replacements took."""

    minutes: int
    least: int
    most: int


def node_minutes(cluster: Cluster, *, replaced: bool) -> int:
    """Return the minutes for the update of a node: those of the last replacements, else 10.

    ``replaced``: whether Cluster API updates the nodes.
    """
    found = last(cluster) if replaced else None
    return _ASSUMED if found is None else found.minutes


@cached
def last(cluster: Cluster) -> ReplacementTime | None:
    """Return how long the last replacements took, those of the slowest MachineDeployment; None: no
    Machines show it.
    """
    known = cluster.known(MACHINE_DEPLOYMENT)
    every = [times for each in known if (times := _of_deployment(each, cluster))]
    every = every or [(one,) for each in known if (one := _of_newest(each, cluster))]
    slowest = max(every, key=median, default=())
    if not slowest:
        return None
    least, middle, most = (
        max(1, round(each / 60)) for each in (min(slowest), median(slowest), max(slowest))
    )
    return ReplacementTime(middle, least, most)


def _newest_set(deployment: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the Machines of the newest MachineSet of a MachineDeployment."""
    sets = grouped(
        machine_rollouts.machines_of(deployment, cluster),
        lambda machine: machine.labels.get(_SET, ""),
    ).values()
    return max(sets, key=lambda some: max(each.created for each in some), default=())


def _of_deployment(deployment: Object, cluster: Cluster) -> Sequence[float]:
    """Return the seconds of the replacements of the newest MachineSet; empty: they do not tell."""
    newest = _newest_set(deployment, cluster)
    known = _starts(newest, cluster)
    took = _seconds(known)
    if len(took) < 2 or len(took) < len(newest) or not _is_plausible(took):
        return ()
    between = [(new - old).total_seconds() for (old, _), (new, _) in pairwise(sorted(known))]
    one_by_one = machine_pools.at_once(deployment, len(newest)) == 1
    follows = all(gap >= before for gap, before in zip(between, took, strict=False))
    return between if one_by_one and follows and _is_plausible(between) else took


def start_seconds(cluster: Cluster) -> int | None:
    """Return how long the slowest of the last new Machines took until its Node was Ready; None: no
    Machines show it.
    """
    known = cluster.known(MACHINE_DEPLOYMENT)
    told = (_newest_set(each, cluster) for each in known if _of_deployment(each, cluster))
    found = [max(_seconds(_starts(machines, cluster))) for machines in told]
    found += [one for each in known if (one := _of_newest(each, cluster))]
    return round(max(found)) if found else None


def _starts(machines: Iterable[Object], cluster: Cluster) -> list[tuple[datetime, datetime]]:
    """Return when Machines were created and their Nodes became Ready, in that order."""
    return sorted(
        (created, ready)
        for machine in machines
        if (created := clock.instant(machine.created)) and (ready := _ready(machine, cluster))
    )


def _seconds(starts: Iterable[tuple[datetime, datetime]]) -> Sequence[float]:
    return [(ready - created).total_seconds() for created, ready in starts]


def _of_newest(deployment: Object, cluster: Cluster) -> float | None:
    """Return the seconds of the start of the newest Machine with a Node, as one that a health check
    or an autoscaler asked for; None: its Node may have become Ready again later.
    """
    machines = sorted(
        machine_rollouts.machines_of(deployment, cluster),
        key=lambda each: each.created,
        reverse=True,
    )
    for machine in machines:
        if (ready := _ready(machine, cluster)) is None:
            continue
        node = find(cluster, NODE, "", machine_nodes.node_name(machine, cluster) or None)
        joined = clock.instant(node.created) if node is not None else None
        created = clock.instant(machine.created)
        if joined is None or created is None or not timedelta(0) <= ready - joined <= _JOINS:
            return None
        took = (ready - created).total_seconds()
        return took if 0 < took <= _LONGEST.total_seconds() else None
    return None


_JOINS: Final = timedelta(minutes=10)
"""A Node is Ready so soon after its kubelet has registered it, or it was Ready before."""


def _is_plausible(times: Sequence[float]) -> bool:
    return 0 < min(times) <= max(times) <= min(_LONGEST.total_seconds(), 3 * min(times))


def _ready(machine: Object, cluster: Cluster) -> datetime | None:
    node = find(cluster, NODE, "", machine_nodes.node_name(machine, cluster) or None)
    said = node.condition("Ready") if node is not None else None
    if said is None or said["status"].text != "True":
        return None
    return clock.instant(said["lastTransitionTime"].text)


def words(minutes: int, cluster: Cluster, *, replaced: bool) -> str:
    """Return what is assumed about the time of one node."""
    if not replaced:
        return f"{minutes} minutes for the update and reboot of a node"
    found = last(cluster)
    said = f"{minutes} minutes for the replacement of a node, until its successor is Ready"
    if found is not None and found.minutes == minutes:
        took = f"{found.least}" if found.least == found.most else f"{found.least} to {found.most}"
        several = " ones" if found.least < found.most else ""
        said = f"{minutes} minutes for the replacement of a node, as the last{several} took {took}"
    return said
