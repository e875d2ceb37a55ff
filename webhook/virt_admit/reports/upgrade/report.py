"""The report of ``virt-admit upgrade``: what its JSON says.

All times are whole seconds from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.forecasts.drain.targets.closed_targets import ClosedTarget
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.outcomes import Wave
from virt_admit.forecasts.upgrade.reboots import RebootCheck
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal, Stop
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.forecasts.upgrade.savings import FasterSetting
from virt_admit.forecasts.upgrade.upgrade_progress import UpgradeProgress
from virt_admit.forecasts.upgrade.vm_interruptions import VmMoves
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes import clock
from virt_admit.model.node_updates.node_phases import Phase
from virt_admit.model.node_updates.operators.release_refusals import RefusedReleases


@dataclass(frozen=True, slots=True)
class UpgradeDuration:
    """How long the upgrade takes, at least and at most, and what the estimate rests on."""

    low: int
    high: int
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpgradeStop:
    """One cause that ends the upgrade at a node. ``node`` is empty for a pool."""

    node: str
    reason: str
    remedy: str
    problem: str | None
    """Its id: cause and root object. Null: it is the consequence of another stop."""
    behind: tuple[str, ...]
    """The ids of the problems that had to be taken as fixed to see it."""


@dataclass(frozen=True, slots=True)
class NodeUnderUpdate:
    """A node whose update has begun and not ended."""

    node: str
    phase: Phase
    since: str | None
    """RFC 3339. Null: not known."""
    waits_for: str | None
    """VMs or pods that are still on it, or the words of its updater. Null:
    it waits for nothing else.
    """


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The nodes of a roll-out by how far they are."""

    done: tuple[str, ...]
    in_flight: tuple[NodeUnderUpdate, ...]
    next: tuple[str, ...]
    """Those that are chosen as soon as the updater looks again."""
    waiting: tuple[str, ...]
    notes: tuple[str, ...]
    """What the others wait for."""


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The rehearsal of one cluster."""

    version: Literal[1]
    by: Driver
    possible: bool | None
    """False also while an operator is held. Null: it cannot be determined."""
    unseen: tuple[str, ...]
    duration: UpgradeDuration | None
    """Null unless the upgrade is possible."""
    waves: tuple[Wave, ...]
    vms: tuple[VmMoves, ...]
    stops: tuple[UpgradeStop, ...]
    faster: tuple[FasterSetting, ...]
    health_checks: tuple[RebootCheck, ...]
    """Health checks that watch nodes of the upgrade; ``acts``:
    on a node that is only being updated.
    """
    progress: RolloutProgress | None
    """How far the roll-out is that is under way. Null: none is, or nothing says so."""
    assumed: tuple[str, ...]
    """The ids of the problems that were taken as fixed.
    ``possible`` and ``duration`` never rest on them.
    """
    possible_if_fixed: bool | None
    """Null: nothing was taken as fixed, or it cannot be determined."""
    duration_if_fixed: Range | None
    """Null unless ``possible_if_fixed``."""
    operators: tuple[StuckOperator, ...]
    """KubeVirt, operators of VMs and Clusters of Cluster API that do not become ready, or whose
    update is stuck, and what an administrator has to do before an upgrade. Without ``stops``, the
    nodes do not hold the upgrade up.
    """
    reported: tuple[ReportedProblem, ...]
    """What objects around the stops report as wrong, in their words."""
    refused: RefusedReleases | None
    """Releases of OpenShift that are refused. ``possible`` is about the others. Null: none is."""
    before_nodes: str | None
    """What an update under way does before the nodes. Times count from their begin. Null:
    nothing.
    """
    paused: tuple[str, ...]
    """MachineConfigPools that are paused as they are meant to be.
    ``possible`` is about the other nodes.
    """
    takes_no_vm: tuple[ClosedTarget, ...]
    """Nodes to which no VM of another one can go now, for a reason of the node itself."""
    old_launchers: str | None
    """Which VMs run launchers older than KubeVirt, and what updates them. Null: none is known."""


def report(result: Rehearsal) -> UpgradeReport:
    """Return the report of a rehearsal."""
    duration = result.ends
    return UpgradeReport(
        version=1,
        by=result.driver,
        possible=result.possible,
        unseen=result.unseen,
        duration=UpgradeDuration(duration.low, duration.high, result.rests_on)
        if duration is not None
        else None,
        waves=result.waves,
        vms=result.vms,
        stops=tuple(map(_stop, result.stops)),
        faster=result.faster,
        health_checks=result.health_checks,
        progress=None if result.progress is None else progress(result.progress),
        assumed=tuple(map(str, result.assumed)),
        possible_if_fixed=result.if_fixed.possible if result.if_fixed is not None else None,
        duration_if_fixed=result.if_fixed.duration if result.if_fixed is not None else None,
        operators=result.operators,
        reported=result.reported,
        refused=result.refused,
        before_nodes=result.before_nodes or None,
        paused=result.paused,
        takes_no_vm=result.closed,
        old_launchers=result.old_launchers or None,
    )


def progress(found: UpgradeProgress) -> RolloutProgress:
    """Return how far a roll-out is."""
    flying = (
        NodeUnderUpdate(each.node, each.phase, clock.stamp(each.since), each.waits_for or None)
        for each in found.in_flight
    )
    return RolloutProgress(found.done, tuple(flying), found.next, found.waiting, found.notes)


def _stop(stop: Stop) -> UpgradeStop:
    problem = None if stop.problem is None else str(stop.problem)
    return UpgradeStop(stop.node, stop.reason, stop.remedy, problem, tuple(map(str, stop.behind)))
