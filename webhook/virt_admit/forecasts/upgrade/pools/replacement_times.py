"""How long Cluster API takes to replace a node, by the Machines of the last roll-outs.

A MachineDeployment makes a new Machine before it deletes an old one, and no node is rebooted.
Machines that are being deleted count: where one more Machine may exist, the next one is created
only after the old one is gone. The time between two Machines is then that of one replacement, drain
included. Source: kubernetes-sigs/cluster-api: core/reconcilers/machinedeployment/mdutil/util.go
#NewMSNewReplicas #TotalMachineSetsReplicaSum.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    every = [
        times
        for deployment in cluster.known(MACHINE_DEPLOYMENT)
        if (times := _of_deployment(deployment, cluster))
    ]
    slowest = max(every, key=median, default=())
    if not slowest:
        return None
    least, middle, most = (
        max(1, round(each / 60)) for each in (min(slowest), median(slowest), max(slowest))
    )
    return ReplacementTime(middle, least, most)


def _of_deployment(deployment: Object, cluster: Cluster) -> Sequence[float]:
    """Return the seconds of the replacements of the newest MachineSet; empty: they do not tell."""
    sets = grouped(
        machine_rollouts.machines_of(deployment, cluster),
        lambda machine: machine.labels.get(_SET, ""),
    ).values()
    newest = max(sets, key=lambda some: max(each.created for each in some), default=())
    known = [
        (created, ready)
        for machine in newest
        if (created := clock.instant(machine.created)) and (ready := _ready(machine, cluster))
    ]
    took = [(ready - created).total_seconds() for created, ready in sorted(known)]
    if len(took) < 2 or len(took) < len(newest) or not _is_plausible(took):
        return ()
    between = [(new - old).total_seconds() for (old, _), (new, _) in pairwise(sorted(known))]
    one_by_one = machine_pools.at_once(deployment, len(newest)) == 1
    follows = all(gap >= before for gap, before in zip(between, took, strict=False))
    return between if one_by_one and follows and _is_plausible(between) else took


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
        said = f"{minutes} minutes for the replacement of a node, as the last ones took {took}"
    return said
