"""Health checks that are about to act on a node which has been silent for less than their own
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, timedelta
from typing import Final

from virt_admit.forecasts.remediation import (
    coverage,
    exclusions,
    harvester_reset,
    inactive_reasons,
    remediation_steps,
    timeline,
    unhealthy_objects,
)
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import CAPI_CLUSTER, CAPI_MHC, NHC, NODE
from virt_admit.model.kubernetes.nodes import is_control_plane
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import node_phases
from virt_admit.model.remediation import check_scope
from virt_admit.model.remediation.check_scope import WatchedNodes

READS: Final[Reads] = union(
    coverage.READS, inactive_reasons.DELAY_READS, node_health.READS, {CAPI_CLUSTER: ()}
)


def advice(name: str, cluster: Cluster) -> str:
    """Return that a health check acts on a silent node soon, and when; empty: none certainly does,
    or its time is over.
    """
    node, now = find(cluster, NODE, "", name), clock.now(cluster)
    since = node_phases.unready_since(node) if node is not None else None
    silent = name in coverage.coverage(cluster).nodes and node_health.silence_now(name, cluster)
    first = cluster.cached(_first).get(name) if silent else None
    if since is None or now is None or first is None:
        return ""
    seconds, check = first
    try:
        at = (since + timedelta(seconds=seconds)).astimezone(UTC)
    except OverflowError:
        return ""
    return (
        f"wait for {check}, which acts on it at {at:%H:%M:%S} UTC if it stays silent"
        if at > now
        else ""
    )


def _first(cluster: Cluster) -> Mapping[str, tuple[int, str]]:
    """Return the health check that acts first on each unhealthy node, after its seconds."""
    idle = {title for title, _ in coverage.coverage(cluster).idle}
    found: dict[str, tuple[int, str]] = {}
    for kind in coverage.CHECKS:
        for watch in (
            watch
            for some in check_scope.watches(cluster, kind).by_namespace.values()
            for watch in some
        ):
            own = (
                (timeline.patience(watch.check) or 0) // SECOND,
                f"{watch.check.obj.kind} {watch.check.obj.name}",
            )
            if own[0] and not watch.check.handler and own[1] not in idle:
                found |= {
                    node: min(own, found.get(node, own)) for node in _acted_on(watch, cluster)
                }
    for node, own in _reset(cluster):
        found[node] = min(own, found.get(node, own))
    return found


def _reset(cluster: Cluster) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield the nodes whose VMs Harvester itself resets, with its seconds."""
    for node in cluster.known(NODE):
        try:
            policy = harvester_reset.of(node, cluster)
            acts = (
                policy is not None
                and not policy.idle
                and harvester_reset.left(frozenset((node.name,)), cluster)
            )
        except Unseen:
            return
        if policy is not None and acts:
            yield node.name, (policy.wait, harvester_reset.TITLE)


def _acted_on(watch: WatchedNodes, cluster: Cluster) -> Iterator[str]:
    """Yield the unhealthy nodes that a check certainly remediates: none if they are too many, nor
    one of two control planes.
    """
    check, selection = watch.check, watch.selection
    counted = list(unhealthy_objects.unhealthy(check, selection, cluster))
    states = [state for state in counted if not isinstance(state, Unseen)]
    if selection.unseen or len(states) < len(counted):
        return
    if remediation_steps.budget(check, selection).refuses(len(states)):
        return
    stops = inactive_reasons.stopped_cluster(check, cluster) if check.kind is CAPI_MHC else ()
    if any(True for _ in (*stops, *inactive_reasons.postponed(check, states, cluster))):
        return
    direct = check.kind is NHC
    guarded = list(inactive_reasons.guarded(check, states, cluster)) if direct else []
    if any(isinstance(each, Unseen) for each in guarded):
        return
    kept = {each[0] for each in guarded if not isinstance(each, Unseen)}
    one_by_one = direct and sum(is_control_plane(state.obj) for state in states) > 1
    for state in states:
        in_turn = state.name in kept or (one_by_one and is_control_plane(state.obj))
        excluded = direct and exclusions.state(state.obj, cluster)
        name = state.name if direct else machine_nodes.node_name(state.obj, cluster)
        if name and not in_turn and not excluded:
            yield name
