"""What ``virt-admit upgrade --follow`` shows: the nodes that changed between two moments,
and its screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from virt_admit.forecasts.drain import progress as drain_progress
from virt_admit.forecasts.upgrade import planned_upgrade, rehearsal, rollouts
from virt_admit.forecasts.upgrade.planned_upgrade import Pace, PlannedUpgrade
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal
from virt_admit.forecasts.upgrade.upgrade_progress import UpgradeProgress
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI, VMIM, Kind
from virt_admit.model.messages import count
from virt_admit.model.node_updates import updaters
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, NodeUpdate, Phase, by_node
from virt_admit.reports.following import FollowChange, Look
from virt_admit.reports.upgrade import report, text
from virt_admit.reports.upgrade.report import NodeUnderUpdate, RolloutProgress

READS: Final = rehearsal.READS
"""The fields that following an upgrade reads."""


@dataclass(frozen=True, slots=True)
class FollowedProgress:
    """How far the upgrade is, and how that compares with the plan."""

    progress: RolloutProgress | None
    """Null: no node is being updated."""
    pace: Pace | None
    """Null: there is no plan, or it is not known when the upgrade began."""


@dataclass(frozen=True, slots=True)
class UpgradeVerdict:
    """Whether the upgrade completes."""

    possible: bool | None
    stops: tuple[report.UpgradeStop, ...]


class UpgradeFollower:
    """The upgrade of a cluster, looked at again and again."""

    needs: tuple[Kind, ...] = (NODE, VMI, POD, VMIM)

    def __init__(self, options: Options, planned: PlannedUpgrade | None = None) -> None:
        self._options, self._planned = replace(options, from_start=False), planned
        self._seen: _Moment | None = None

    def look(self, cluster: Cluster) -> Look:
        """Judge the upgrade at one moment."""
        before, found = self._seen, self._moment(cluster)
        self._seen = found
        return Look(
            tuple(_changes(before, found)),
            tuple(_screen(found)),
            (tuple(found.phases.items()), found.left),
            found.moved,
            _done(before, found),
            stuck=found.result.possible is False,
            state=report.report(found.result),
        )

    def _moment(self, cluster: Cluster) -> _Moment:
        result = rehearsal.rehearse(cluster, self._options, forecast_only=True)
        pools = rollouts.updates(result.driver, cluster)
        nodes = dict(by_node(pools))
        under_way = result.progress.in_flight if result.progress is not None else ()
        return _Moment(
            result,
            {name: update.phase for name, update in nodes.items()},
            tuple(sorted(f"{node.node}: {node.waits_for}" for node in under_way)),
            max(_moves(nodes, cluster), default=None),
            self._pace(result.progress, planned_upgrade.began(pools), clock.now(cluster)),
            updaters.has_failed(cluster),
        )

    def _pace(
        self, progress: UpgradeProgress | None, began: datetime | None, current: datetime | None
    ) -> Pace | None:
        if self._planned is None or progress is None or began is None or current is None:
            return None
        elapsed = max(int((current - began).total_seconds()), 0)
        return planned_upgrade.pace(self._planned, len(progress.done), elapsed)


@dataclass(frozen=True, slots=True)
class _Moment:
    """One moment of an upgrade."""

    result: Rehearsal
    phases: Mapping[str, Phase]
    """Of each node, as far as its updater says so."""
    left: tuple[str, ...]
    """What the nodes under way wait for."""
    moved: datetime | None
    pace: Pace | None
    failed: bool
    """Whether an upgrade of Harvester or a maintenance has ended with an error."""


def _moves(nodes: Mapping[str, NodeUpdate], cluster: Cluster) -> Iterator[datetime]:
    """Yield when the nodes under way entered their phases,
    and when migrations away from them changed theirs.
    """
    for name, update in nodes.items():
        if update.phase in IN_FLIGHT:
            yield from filter(None, (update.since, drain_progress.moved(name, cluster)))


def _done(before: _Moment | None, found: _Moment) -> str:
    """Return that nothing is left to follow; empty: something is, or nothing has begun."""
    phases = [phase for phase in found.phases.values() if phase is not Phase.NOT_PART]
    if phases and all(phase is Phase.DONE for phase in phases):
        number = len(phases)
        return f"all {number} nodes are done" if number > 1 else "the node is done"
    was_under_way = before is not None and before.result.progress is not None
    ended = was_under_way and not found.phases and not found.result.unseen and not found.failed
    return "no node is being updated any more" if ended else ""


# --- changes --------------------------------------------------------------------------------------


def _changes(before: _Moment | None, found: _Moment) -> Iterator[FollowChange]:
    """Yield what changed between two moments, or everything at the first one."""
    progress = found.result.progress
    now = report.progress(progress) if progress is not None else None
    flying = {each.node: each for each in now.in_flight} if now is not None else {}
    under_way = progress.in_flight if progress is not None else ()
    sentences = {each.node: text.in_flight(each) for each in under_way}
    old = before.phases if before is not None else {}
    for name, phase in found.phases.items():
        was = old.get(name)
        if was is phase or (before is None and phase not in IN_FLIGHT):
            continue
        arrow = f"{was} → {phase}" if was is not None else str(phase)
        value = flying.get(name) or NodeUnderUpdate(name, phase, None, None)
        what = f": {sentences[name]}" if name in sentences else ""
        yield FollowChange("state", f"{name} {arrow}{what}", value)
    if before is None or _counted(before) != _counted(found):
        value_now = FollowedProgress(now, found.pace)
        yield FollowChange("progress", " ".join(_head(found)), value_now)
    if before is None or _verdict_key(before) != _verdict_key(found):
        stops = report.report(found.result).stops
        yield FollowChange("verdict", _verdict(found), UpgradeVerdict(found.result.possible, stops))


def _counted(found: _Moment) -> tuple[int, int]:
    progress = found.result.progress
    return (len(progress.done), progress.total) if progress is not None else (0, 0)


def _verdict_key(found: _Moment) -> object:
    stops = tuple((stop.node, str(stop.problem)) for stop in found.result.stops)
    return found.result.possible, stops


def _verdict(found: _Moment) -> str:
    return text.verdict(found.result) + "".join(
        f" {stop.node or 'a pool'}: {stop.reason}. To do: {stop.remedy}"
        for stop in found.result.stops
    )


# --- the screen -----------------------------------------------------------------------------------


def _head(found: _Moment) -> Iterator[str]:
    progress = found.result.progress
    yield text.so_far(progress) if progress is not None else "No node is being updated."
    if found.pace is not None:
        yield _pace_words(found.pace)


def _pace_words(pace: Pace) -> str:
    if pace.behind:
        return f"It is {text.hours(pace.behind)} behind the plan."
    return (
        f"It is {text.hours(pace.ahead)} ahead of the plan." if pace.ahead else "It is as planned."
    )


def _screen(found: _Moment) -> Iterator[str]:
    progress, result = found.result.progress, found.result
    yield " ".join(_head(found))
    if result.ends is not None and progress is not None:
        yield f"It ends in {text.span(result.ends)}."
    else:
        yield text.verdict(result)
    for node in progress.in_flight if progress is not None else ():
        yield f"  {text.in_flight(node)}"
    if progress is not None and (progress.next or progress.waiting):
        yield (
            f"  {count(len(progress.next) + len(progress.waiting), 'node')} to come: "
            + text.some((*progress.next, *progress.waiting))
        )
    for stop in result.stops:
        yield f"stops at {stop.node}: {stop.reason}" if stop.node else f"stops: {stop.reason}"
        yield f"  to do: {stop.remedy}"
    yield from (f"cannot be determined: {what}" for what in result.unseen)
