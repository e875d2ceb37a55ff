"""Whether the drain of a node can begin now, or something else has to pass first."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

from virt_admit.forecasts.drain.budgets.drain_obstacles import ForeignWait, Wait
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import updaters
from virt_admit.model.node_updates.node_phases import EMPTIED
from virt_admit.model.node_updates.rancher import cpu_manager_jobs
from virt_admit.model.remediation import control_plane


class Readiness(enum.StrEnum):
    """When the drain of a node that nothing blocks can begin."""

    NOW = "now"
    LATER = "after a wait"
    NOT_OPEN = "not open"
    """It does not report, its update has drained it, or its reboot needs a repair first."""


def of_node(name: str, waits: Sequence[Wait], cluster: Cluster) -> Readiness:
    """Return when the drain of a node can begin.

    A control-plane node is drained for its reboot, so one that etcd needs meanwhile is not ready.
    A Job of Harvester that changes the node ends first, as it fails with its pod.
    """
    update = updaters.of_nodes(cluster).get(name)
    is_drained = update is not None and update.phase in EMPTIED
    if is_drained or node_health.silence_now(name, cluster):
        return Readiness.NOT_OPEN
    if control_plane.reboot_risk(name, cluster) is not None:
        return Readiness.LATER if awaited_reboots(name, cluster) else Readiness.NOT_OPEN
    awaited = any(isinstance(each, ForeignWait) for each in waits)
    node = find(cluster, NODE, "", name)
    changed = node is not None and cpu_manager_jobs.of_node(node, cluster)
    return Readiness.LATER if awaited or changed else Readiness.NOW


def awaited_reboots(name: str, cluster: Cluster) -> Sequence[str]:
    """Return which nodes are to be waited for before the reboot of another one, as they are being
    rebooted on purpose and nothing else is a risk; empty: more has to be done.
    """
    back = [
        each
        for each in control_plane.members(cluster)
        if node_health.silence_now(each, cluster) and awaited_return.is_planned(each, cluster)
    ]
    return () if control_plane.reboot_risk(name, cluster, back) is not None else back


def state(node: Object | None) -> Iterator[str]:
    """Yield the state of a node, if it is not normal."""
    if node is None:
        yield "not seen"
        return
    if node.at("spec", "unschedulable").boolean:
        yield "cordoned"
    if node.condition("Ready")["status"].value != "True":
        yield "not Ready"
