"""How often an upgrade moves a VM or shuts its guest down,
and how long the guest is down or paused in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain import migration_doubts, vm_downtime
from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.forecasts.drain.states.vm_states_kinds import AT_REST, State
from virt_admit.forecasts.drain.vm_downtime import NONE, Downtime
from virt_admit.forecasts.drain.vm_outcomes import SHUT_DOWN, Forecast, VmOutcome
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubevirt.instances import migration_timeouts
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import cut_middle, names


@dataclass(frozen=True, slots=True)
class VmRisk:
    """What may happen to a guest that migrates, although the drain of its node ends."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class VmMoves:
    """What happens to a VM during the upgrade."""

    namespace: str
    name: str
    moves: int
    """Migrations and restarts."""
    outcome: VmOutcome
    shutdowns: int = 0
    """How often the guest is shut down."""
    downtime: Downtime | None = None
    """How long the guest is down in all. None: it cannot be determined."""
    paused: Downtime | None = None
    """How long migrations may pause the guest in all. None: it cannot be determined."""
    unless: str = ""
    """When the VM stays off although its node comes back; empty: it does not."""
    risk: VmRisk | None = None
    """What a drain may do to its guest, as ``drain`` says. None: nothing is known."""
    without_room: int | None = 0
    """For how many seconds no node has room to start it again, in the longest run. None: until the
    end."""

    @property
    def is_down_in_place(self) -> bool:
        """Whether its guest is shut down and does not start on another node."""
        return bool(self.shutdowns) and self.outcome in (VmOutcome.STOPS, VmOutcome.AWAITS_NODE)

    @property
    def stays_stopped(self) -> bool:
        """Whether the upgrade shuts its guest down for good."""
        return bool(self.shutdowns) and self.outcome is VmOutcome.STOPS


def moved(plan: Plan, low: Outcome, high: Outcome, cluster: Cluster) -> Iterator[VmMoves]:
    """Yield the VMs of an upgrade with their moves in the shortest and the longest run."""
    places = {row.vmi.full_name: node.name for node in plan.nodes for row in node.forecasts}
    for row in _sorted(plan):
        name = row.vmi.full_name
        node = places[name]
        leaves = int(row.state.state in _LEAVING and row.outcome is VmOutcome.MIGRATES)
        moves = max(low.moves.get(name, 0), high.moves.get(name, 0), leaves)
        away = (
            high.ended[node] - high.started[node]
            if node in high.ended and node in low.ended
            else None
        )
        is_lost = name in low.lost or name in high.lost
        waits = 0 if is_lost else _without_room(name, low, high)
        stopped = shutdowns(row, moves, reached=node in high.started)
        yield VmMoves(
            row.vmi.namespace,
            row.vmi.name,
            max(low.moves.get(name, 0), leaves),
            row.outcome,
            max(stopped, int(is_lost)),
            None if is_lost else _with_wait(downtime(row, stopped, away), waits),
            paused(row, moves, cluster),
            row.unless,
            _risk(row, moves, cluster) if moves else None,
            waits,
        )


_LEAVING: Final = (State.MARKED, State.QUEUED)
"""It is evicted from a node that the upgrade may not reach, and its migration has not begun."""


def _without_room(vm: str, *runs: Outcome) -> int | None:
    if any(vm in run.off for run in runs):
        return None
    return max(run.waited.get(vm, 0) for run in runs)


def _with_wait(down: Downtime | None, waits: int | None) -> Downtime | None:
    """Return a downtime with the longest wait for room."""
    if down is None or down.high is None:
        return down
    return replace(down, high=None if waits is None else down.high + waits)


def _risk(row: Forecast, moves: int, cluster: Cluster) -> VmRisk | None:
    """Return what a drain may do to a guest; one that moves again is at rest before that.

    An upgrade of Harvester evicts no pod before every VM has left the node
    (harvester/harvester:package/upgrade/upgrade_node.sh#wait_vms_out_or_shutdown).
    """
    if row.outcome is not VmOutcome.MIGRATES or nodes.has_harvester(cluster):
        return None
    state = row.state if moves == 1 else AT_REST
    found = migration_doubts.side_effect(row.vmi, state, cluster)
    return VmRisk(found.reason, found.remedy) if found is not None else None


def lost(runs: Sequence[Outcome]) -> Iterator[str]:
    """Yield which VMs are lost with the nodes on which they are when the time of a drain ends."""
    places = {name: place for run in runs for name, place in run.lost.items()}
    sure = {name: all(name in run.lost for run in runs) for name in places}
    alike = grouped(places, lambda name: (*places[name], sure[name]))
    for (node, why, certain), vms in alike.items():
        again = (
            ", without room to start again" if all(run.off.issuperset(vms) for run in runs) else ""
        )
        yield (
            f"{'Lost' if certain else 'Perhaps lost'} with {node} then{again}: {names(vms)}: "
            f"{cut_middle(why, 200)}. Make room elsewhere, or shut the guest down before"
        )


def unmoved(plan: Plan) -> Iterator[VmMoves]:
    """Yield the VMs of an upgrade of which it is not known how it goes."""
    for row in _sorted(plan):
        yield VmMoves(row.vmi.namespace, row.vmi.name, 0, row.outcome)


def _sorted(plan: Plan) -> Sequence[Forecast]:
    return sorted(
        (row for node in plan.nodes for row in node.forecasts), key=lambda row: row.vmi.full_name
    )


def shutdowns(row: Forecast, moves: int, *, reached: bool) -> int:
    """Return how often the VM is shut down: at each move,
    or once where it does not start on another node. What its owner stops does not count.
    """
    if row.outcome not in SHUT_DOWN or row.by_owner:
        return 0
    return moves if row.outcome is VmOutcome.RESTARTS else int(reached)


def downtime(row: Forecast, count: int, away: int | None) -> Downtime | None:
    """Return how long the guest is down in all.

    Args:
        row: what a drain of its node does to the VM.
        count: how often it is shut down.
        away: the seconds in which its node is drained and updated in the longest run; None: without
            end.
    """
    if row.outcome is VmOutcome.MIGRATES or (row.outcome in SHUT_DOWN and not count):
        return NONE
    if row.outcome not in SHUT_DOWN:
        return None
    once = vm_downtime.restart(row)
    if row.outcome is VmOutcome.RESTARTS:
        return Downtime(once.low * count, None if once.high is None else once.high * count)
    if row.outcome is VmOutcome.AWAITS_NODE and away is not None and once.high is not None:
        return Downtime(once.low, away + once.high)
    return Downtime(0, None)


def paused(row: Forecast, moves: int, cluster: Cluster) -> Downtime | None:
    """Return how long migrations may pause the guest in all.

    Only ``allowWorkloadDisruption`` without post-copy pauses it: from the completion time-out until
    twice that
    (kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#handleLegacyConvergence).
    """
    if row.outcome in SHUT_DOWN or not moves:
        return NONE
    if row.outcome is not VmOutcome.MIGRATES:
        return None
    try:
        settings = migration_timeouts.settings(row.vmi, row.vmi["-"], cluster)
    except Unseen:
        return None
    if settings is None:
        return None
    if settings.post_copy or not settings.disruption:
        return NONE
    limit = migration_timeouts.seconds(row.vmi, settings, cluster)
    return Downtime(0, limit * moves if limit else None)
