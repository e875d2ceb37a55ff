"""Health checks that are about to act on a node which has been silent for less than their own time."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.remediation import coverage, remediation_steps, timeline
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import node_phases
from virt_admit.model.remediation import check_scope
from virt_admit.model.remediation.check_scope import WatchedNodes

READS: Final[Reads] = union(
    clock.READS, coverage.READS, node_health.READS, {NODE: ("status.conditions.lastTransitionTime",)}
)


def advice(name: str, cluster: Cluster) -> str:
    """Return that a health check acts on a silent node soon, and when; empty: none certainly does, or its time is over."""
    node, now = find(cluster, NODE, "", name), clock.now(cluster)
    since = node_phases.unready_since(node) if node is not None else None
    covered = coverage.coverage(cluster)
    if since is None or now is None or name not in covered.nodes or not node_health.silence_now(name, cluster):
        return ""
    every = (
        watch
        for kind in coverage.CHECKS
        for some in check_scope.watches(cluster, kind).by_namespace.values()
        for watch in some
    )
    times = [
        (timedelta(seconds=found), watch) for watch in every if (found := _patience(watch, name, covered.idle, cluster))
    ]
    if not times:
        return ""
    patience, watch = min(times, key=lambda each: each[0])
    check, at = watch.check.obj, since + patience
    if at <= now:
        return ""
    return f"wait for {check.kind} {check.name}, which acts on it at {at:%H:%M:%S} UTC if it stays silent"


def _patience(watch: WatchedNodes, node: str, idle: tuple[tuple[str, str], ...], cluster: Cluster) -> int:
    """Return after how many seconds a check acts on a silent node; 0: it does not act on this one, or on so many."""
    check, selected = watch.check, set(remediation_steps.nodes_of(watch.check, watch.selection, cluster))
    acts = not check.handler and f"{check.obj.kind} {check.obj.name}" not in {title for title, _ in idle}
    if not acts or node not in selected:
        return 0
    down = sum(bool(node_health.silence_now(each, cluster)) for each in selected)
    refused = remediation_steps.budget(check, watch.selection).refuses(down)
    return 0 if refused else (timeline.patience(check) or 0) // SECOND
