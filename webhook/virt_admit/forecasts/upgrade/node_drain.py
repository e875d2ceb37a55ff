"""How long a drain of one node lasts from now: with the durations of a rehearsal, from the states
that its VMs are in.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from virt_admit.forecasts.drain import vm_downtime
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.drain.ongoing_drains import is_open_too_long
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.vm_outcomes import SHUT_DOWN, Forecast
from virt_admit.forecasts.upgrade import durations
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.simulation import RECHECK
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubevirt.instances import migration_timeouts, vms
from virt_admit.model.kubevirt.settings import parallel_migrations
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.resources import MEMORY

POD_GRACE: Final = 30
"""Seconds that a pod without ``terminationGracePeriodSeconds`` has to end."""
_LEAVING: Final = frozenset(
    (State.ARRIVED, State.NOT_CLOSED, State.ENDED, State.GONE, State.POST_COPY)
)
_STARTING: Final = frozenset((State.TARGET_NOT_READY, State.PREPARING))
_LAUNCHER_TIMEOUT: Final = 359
"""Seconds after which a target pod without a domain ends at the latest: ``--launcher-qemu-timeout``
of 240 s, plus chance (cmd/virt-launcher/virt-launcher.go#waitForDomainUUID).
"""
_UNDER_WAY: Final = frozenset((State.RUNNING, State.PAUSED))
_GIVEN_UP: Final = frozenset(
    (State.UNSCHEDULABLE, State.TARGET_PENDING, State.BACKOFF, State.BLOCKED_BY_VOLUME)
)
_TIMED: Final = _UNDER_WAY | _STARTING | _GIVEN_UP
"""States whose next step, at ``until``, is a migration from its beginning in the longest run."""


def remaining(node: NodePlan, pods: int, cluster: Cluster) -> Range | None:
    """Return how many seconds are left until nothing is on a node that a drain evicts,
    if it is being drained now.

    The shortest run has all places of KubeVirt's queue for this node. The longest one waits for the
    migrations of all other nodes first, where the limit of the cluster binds, and each migration
    ends at its deadline.

    Args:
        node: the effects of the drain.
        pods: the number of other pods that are left.
        cluster: the cluster.

    Returns:
        None: the drain does not end, or that cannot be determined.
    """
    if node.drainable is not True or any(is_open_too_long(row, cluster) for row in node.forecasts):
        return None
    try:
        limits = cluster.cached(parallel_migrations.limits)
    except Unseen:
        return None
    moves = [_left(row, cluster) for row in node.forecasts if row.outcome not in SHUT_DOWN]
    moves += [_visit(row, cluster) for row in node.visitors]
    stops = [
        durations.restart(row.vmi).seconds for row in node.forecasts if row.outcome in SHUT_DOWN
    ]
    places = max(1, min(limits.node, limits.cluster))
    shortest, longest = [each.low for each in moves], [each.high for each in moves]
    low = max(
        (*shortest, *(each.low for each in stops), math.ceil(sum(shortest) / places)), default=0
    )
    high = max((*(each.high for each in stops), POD_GRACE if pods else 0), default=0)
    if moves:  # in the worst order the longest one begins last
        queue = math.ceil(sum(longest) / places + (1 - 1 / places) * max(longest))
        queue += RECHECK * math.ceil(len(moves) / places)
        high = max(
            high, queue + _of_others(node.name, limits.cluster - places, limits.cluster, cluster)
        )
    return Range(low, max(low, high))


def _left(row: Forecast, cluster: Cluster) -> Range:
    """Return the seconds until a VM has left, once it has a place."""
    state = row.state
    whole = durations.migration(row.vmi, row.target.pod.requests, cluster).seconds
    if state.state in _LEAVING:
        return Range(0, vm_downtime.START[1])
    if state.state not in _TIMED:  # what reads the clock is judged again each minute
        return whole
    current = clock.now(cluster)
    if current is None:
        return whole
    wait = _seconds(state.until, current)
    if state.state in _UNDER_WAY:
        elapsed = -_seconds(state.since, current, past=True)
        low = max(0, whole.low - elapsed)
        return Range(low, max(low, wait if state.until is not None else whole.high - elapsed, 1))
    if state.state in _STARTING:
        elapsed = -_seconds(state.since, current, past=True)
        return Range(whole.low, whole.high + max(0, _LAUNCHER_TIMEOUT - elapsed))
    if state.state in _GIVEN_UP and state.until is not None:
        return Range(whole.low + (wait if state.state is State.BACKOFF else 0), whole.high + wait)
    return whole


def _visit(row: Forecast, cluster: Cluster) -> Range:
    """Return the seconds until a VM of another node has left: its old pod ends,
    or it arrives and moves again.
    """
    first = _left(row, cluster)
    if row.state.state is State.ARRIVED:
        return first
    again = durations.migration(row.vmi, row.target.pod.requests, cluster).seconds
    return Range(first.low + again.low, first.high + again.high)


def _seconds(time: datetime | None, current: datetime, *, past: bool = False) -> int:
    """Return the seconds until a time, 0 if it has passed;
    with ``past`` the negative seconds since it.
    """
    if time is None:
        return 0
    length = math.ceil((time - current).total_seconds())
    return min(length, 0) if past else max(length, 0)


def _of_others(node: str, free: int, places: int, cluster: Cluster) -> int:
    """Return how long migrations of other nodes may hold the places of the cluster that this node
    needs.
    """
    open_migrations = (each for each in cluster.known(VMIM) if not each.ended)
    found = (
        find(cluster, VMI, vms.namespace_of(each), each.at("spec", "vmiName").text)
        for each in open_migrations
    )
    moved = [vmi for vmi in found if vmi is not None and vmi.at("status", "nodeName").text != node]
    if len(moved) <= free:
        return 0
    longest = (
        durations.migration(vmi, {MEMORY: migration_timeouts.size(vmi)}, cluster).seconds.high
        for vmi in moved
    )
    return math.ceil(sum(longest) / max(places, 1))
