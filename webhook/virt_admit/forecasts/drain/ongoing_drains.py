"""The drains that are under way: by what, since when, what is left and how much of it is stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain import progress
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.progress import DrainCause, DrainStart
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE


@dataclass(frozen=True, slots=True)
class OngoingDrain:
    """A node that is being drained, at one moment."""

    node: str
    start: DrainStart
    moved: datetime | None
    """When a migration away from the node last changed its phase; None:
    not since the drain began.
    """
    states: Mapping[State, int]
    """The number of VMs left, by what they are doing."""
    stuck: int
    """VMs that last much longer than they should, or that never leave."""
    vms: frozenset[str]
    """VMs left, ``namespace/name``."""
    pods: frozenset[str]
    """Pods left that a drain evicts, also those of VMs."""
    others: int
    """The number of these that are not of VMs."""
    complete: bool
    """Whether these are all."""
    evicts: bool
    """Whether something other than the cordon shows that the node is drained: its cause, or a VM
    that leaves or has left.
    """

    @property
    def empty(self) -> bool:
        """Whether certainly nothing is left."""
        return self.complete and not self.vms and not self.pods


def ongoing(plan: Plan, cluster: Cluster) -> Iterator[OngoingDrain]:
    """Yield the drain of each node of a plan that is being drained,
    also of a node that is empty by now.
    """
    starts = cluster.cached(_starts)
    for found in plan.nodes:
        start = starts.get(found.name)
        if start is not None:
            yield _ongoing(found, start, cluster)


def _starts(cluster: Cluster) -> Mapping[str, DrainStart]:
    found = ((node.name, progress.start(node, cluster)) for node in cluster.known(NODE))
    return {name: start for name, start in found if start is not None}


def _ongoing(found: NodePlan, start: DrainStart, cluster: Cluster) -> OngoingDrain:
    rest = progress.remaining(found.name, cluster)
    moved = progress.moved(found.name, cluster)
    if moved is not None and start.since is not None and moved < start.since:
        moved = None
    # a VM has migrated away since the node was cordoned
    left = moved is not None and start.since is not None
    return OngoingDrain(
        node=found.name,
        start=start,
        moved=moved,
        states=Counter(row.state.state for row in found.forecasts),
        stuck=sum(is_stuck(row, cluster) for row in found.forecasts),
        vms=frozenset(row.vmi.full_name for row in found.forecasts),
        pods=frozenset((*rest.pods, *rest.old_pods)),
        others=len(rest.pods),
        complete=rest.complete,
        evicts=start.cause is not DrainCause.CORDON or left or any(map(_leaves, found.forecasts)),
    )


_ENDLESS: Final = frozenset((State.NO_TARGET, State.DECENTRALIZED))
"""States without a known end that are not judged as blocking."""


_OPEN_TOO_LONG: Final = timedelta(minutes=5)


def is_stuck(row: Forecast, cluster: Cluster) -> bool:
    """Return whether a VM lasts much longer than it should, or never leaves."""
    endless = row.state.state in _ENDLESS or is_open_too_long(row, cluster)
    return row.outcome is VmOutcome.BLOCKS or row.state.late or endless


def is_open_too_long(row: Forecast, cluster: Cluster) -> bool:
    """Return whether a migration has copied everything and stays open:
    it waits for a condition that may never go.
    """
    state = row.state
    return state.state is State.NOT_CLOSED and vm_states_times.is_older(
        state.since, _OPEN_TOO_LONG, cluster
    )


def _leaves(row: Forecast) -> bool:
    return row.state.state in progress.FURTHER and Flag.FOREIGN not in row.state.flags
