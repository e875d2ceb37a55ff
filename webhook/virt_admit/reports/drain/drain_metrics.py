"""Metrics of drains that are under way, and of what a process saw of them (docs/metrics.md).

The gauges come from objects, so a restart loses nothing. The histogram and the counter have only
what this process saw.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from virt_admit.forecasts.drain.ongoing_drains import OngoingDrain
from virt_admit.forecasts.drain.progress import DrainStart
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.reports.scan_metrics import add_gauge

T = TypeVar("T")

BUCKETS: Final = (60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 57600, 86400)
"""Seconds: 1 minute to 24 hours."""

EMPTIED: Final = "emptied"
GIVEN_UP: Final = "given_up"
"""The node takes VMs again although some had not left."""
NODE_DELETED: Final = "node_deleted"


@dataclass(slots=True)
class SeenDrain:
    """What this process knows of a drain from looking at it several times."""

    last: OngoingDrain
    """The last moment at which its VMs and pods were known."""
    first_seen: datetime
    moved: datetime | None = None
    """When something last left."""
    vms_left: bool = False
    ended: bool = False
    """Whether the node became empty; its cordon may stay."""

    @property
    def evicts(self) -> bool:
        return self.last.evicts or self.vms_left

    @property
    def progress(self) -> datetime | None:
        """When the drain began or last made progress; None: not known."""
        times = (self.last.start.since, self.last.moved, self.moved)
        return max((time for time in times if time is not None), default=None)


class DrainMetrics(Collector):
    """Follows drains from one judgement of the cluster to the next."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seen: dict[str, SeenDrain] = {}
        self._shown: Callable[[], CollectorRegistry] = CollectorRegistry
        """Makes the gauges when they are asked for."""
        self._runs: Mapping[tuple[str, str], bool] = {}
        self._running: set[tuple[str, str]] = set()
        """VMs that should run, and ran at some time."""
        self._down: Collection[tuple[str, str]] = ()
        self._counted: datetime | None = None
        self._namespaces: set[str] = set()
        """Namespaces with a series of downtime."""
        registry.register(self)
        self._durations = Histogram(
            "virt_admit_drain_duration_seconds",
            "How long drains took whose end the watch saw.",
            ("by", "result"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._downtime = Counter(
            "virt_admit_vm_downtime_seconds",
            "Time in which VMs that should run did not, as far as the watch saw them run before.",
            ("namespace",),
            registry=registry,
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the latest judgement (prometheus_client calls this)."""
        yield from self._shown().collect()

    @property
    def under_way(self) -> bool:
        """Whether something still has to leave a node that is drained, not only cordoned."""
        return any(seen.evicts and not seen.ended for seen in self._seen.values())

    # --- drains -----------------------------------------------------------------------------------

    def follow(
        self,
        drains: Collection[OngoingDrain],
        nodes: Collection[str],
        forecasts: Mapping[str, Range],
        phases: Mapping[tuple[str, str], int],
        now: datetime,
    ) -> None:
        """Take in the drains at one moment.

        Args:
            drains: every node that is being drained.
            nodes: the names of all nodes.
            forecasts: how long a drain of each node lasts from now. Only those of nodes that are
                not drained are shown.
            phases: the number of nodes by pool and phase of their update.
            now: the API server's time.
        """
        current = {drain.node: drain for drain in drains}
        for node in [node for node in self._seen if node not in current]:
            seen = self._seen.pop(node)
            if not seen.ended:
                self._end(seen, GIVEN_UP if node in nodes else NODE_DELETED, now)
        for node, drain in current.items():
            self._take(node, drain, now)
        at_rest = {node: length for node, length in forecasts.items() if node not in current}
        under_way = [replace(seen) for seen in self._seen.values() if not seen.ended]
        self._shown = cache(partial(drain_gauges, under_way, at_rest, phases))

    def _take(self, node: str, drain: OngoingDrain, now: datetime) -> None:
        seen = self._seen.get(node)
        if seen is None or (seen.ended and _is_later(seen.last.start, drain.start)):
            # a node that is empty when it is seen first was emptied before, or had nothing to drain
            self._seen[node] = SeenDrain(drain, now, ended=drain.empty)
            return
        before = seen.last
        if drain.complete:
            seen.vms_left |= bool(before.vms - drain.vms)
            if before.vms - drain.vms or before.pods - drain.pods:
                seen.moved = now
            seen.last = drain
        if drain.empty and not seen.ended:
            seen.ended = True
            self._end(seen, EMPTIED, now)

    def _end(self, seen: SeenDrain, result: str, now: datetime) -> None:
        """Count a drain that has ended. A cordon of which nothing was evicted was none."""
        if seen.evicts or result == EMPTIED:
            began = seen.last.start.since or seen.first_seen
            seconds = max((now - began).total_seconds(), 0)
            self._durations.labels(str(seen.last.start.cause), result).observe(seconds)

    # --- downtime ---------------------------------------------------------------------------------

    def follow_guests(self, runs: Mapping[tuple[str, str], bool], now: datetime) -> None:
        """Take in which VMs that should run do, by namespace and name."""
        self.count_downtime(now)
        if runs is self._runs:
            return
        self._runs = runs
        self._running = {vm for vm, running in runs.items() if running or vm in self._running}
        self._down = [vm for vm in self._running if not runs[vm]]
        gone = self._namespaces - {namespace for namespace, _ in runs} if self._namespaces else ()
        # else a cluster whose namespaces come and go would get more and more series
        for namespace in gone:
            self._downtime.remove(namespace)
        self._namespaces.difference_update(gone)

    def count_downtime(self, now: datetime, *, current: bool = True) -> None:
        """Count the time since the last call for the VMs that are down;
        none of it if they could not be watched.
        """
        since, self._counted = self._counted, now
        if since is not None and current:
            for namespace, _ in self._down:
                self._namespaces.add(namespace)
                self._downtime.labels(namespace).inc(max((now - since).total_seconds(), 0))


def _is_later(before: DrainStart, now: DrainStart) -> bool:
    """Return whether a node was given back and is drained again."""
    return before.since is not None and now.since is not None and now.since > before.since


def drain_gauges(
    seen: Collection[SeenDrain],
    forecasts: Mapping[str, Range],
    phases: Mapping[tuple[str, str], int],
) -> CollectorRegistry:
    """Return the gauges of drains that are not empty yet, of the forecasts of the other nodes,
    and of roll-outs.
    """
    registry = CollectorRegistry()
    add, drains = partial(add_gauge, registry), [each.last for each in seen]
    text = "When the drain of a node began, and by what."
    begins = {(each.node, each.start.cause): each.start.since for each in drains}
    add("drain_started_timestamp_seconds", text, ("node", "by"), _timestamps(begins))
    text = (
        "When a VM or pod last left a draining node, or a migration away from it changed its "
        "phase, or the drain began."
    )
    moves = {each.last.node: each.progress for each in seen if each.evicts}
    add("drain_last_progress_timestamp_seconds", text, ("node",), _timestamps(moves))
    text = "VMs left on a draining node, by what they are doing."
    states = {(each.node, key): number for each in drains for key, number in each.states.items()}
    add("drain_vms", text, ("node", "state"), states)
    text = "VMs left on a draining node that last much longer than they should, or never leave."
    add("drain_stuck_vms", text, ("node",), {each.node: each.stuck for each in drains})
    text = "Estimated duration of a drain of a node that is not being drained."
    bounds = {
        (node, bound): seconds
        for node, length in forecasts.items()
        for bound, seconds in (("low", length.low), ("high", length.high))
    }
    add("node_drain_seconds", text, ("node", "bound"), bounds)
    text = "Nodes of a MachineConfigPool, a MachineDeployment or an upgrade of Harvester."
    add("upgrade_nodes", text, ("pool", "phase"), phases)
    return registry


def _timestamps(times: Mapping[T, datetime | None]) -> dict[T, float]:
    """Return seconds since 1970, without the times that are not known."""
    return {key: time.timestamp() for key, time in times.items() if time is not None}
