"""The failover that is left, as metrics (docs/metrics.md) and on the page of ``watch``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from virt_admit.forecasts.outage.failover_figures import FailoverFigures, figures, not_survived
from virt_admit.forecasts.outage.outages import amount
from virt_admit.forecasts.outage.reserve_crossing import Reserve, crossing, reserve
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.messages import count
from virt_admit.model.scheduler.resources import MEMORY, show
from virt_admit.reports.findings.report import ObjectResult
from virt_admit.reports.html.levels import BAD
from virt_admit.reports.html.page import Cell, Page, Table, Tile
from virt_admit.reports.outage import crossing_events
from virt_admit.reports.outage.text import period
from virt_admit.reports.scan_metrics import add_gauge, as_numbers


class FailoverMetrics(Collector):
    """Shows the latest figures as metrics, and on a page."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.latest: FailoverFigures | None = None
        self.started: tuple[ObjectResult, ...] = ()
        """What is said about the VMs that began to run when the room for one lost node ran out,
        until there is room.
        """
        self._reserve: Reserve | None = None
        self._shown = CollectorRegistry()
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the latest figures (prometheus_client calls this)."""
        yield from self._shown.collect()

    def estimate(self, cluster: Cluster) -> None:
        """Take in what changed. A known node stays, undetermined, while nodes cannot be read."""
        found = cluster.cached(figures)
        if self.latest is not None and next(more_may_exist(cluster, NODE), None) is not None:
            found = replace(found, nodes=dict.fromkeys(self.latest.nodes) | dict(found.nodes))
        self.latest = found
        shown = CollectorRegistry()
        add(shown, self.latest)
        self._shown = shown
        self._follow(cluster.cached(reserve), cluster)

    def _follow(self, now: Reserve | None, cluster: Cluster) -> None:
        if now is None:
            return
        crossed = crossing(self._reserve, now) if self._reserve is not None else None
        if crossed is not None:
            self.started = tuple(crossing_events.results(crossed, cluster))
        elif all(left >= 0 for left, _ in now.left.values()):
            self.started = ()
        self._reserve = now


def add(registry: CollectorRegistry, found: FailoverFigures) -> None:
    """Add the gauges of these figures. What cannot be determined has no sample, or the value -1."""
    for what, verdicts in (("node", found.nodes), ("zone", found.zones)):
        text = (
            f"Whether the cluster survives the loss of a {what}: 1 yes, 0 no, -1 it cannot be "
            "determined."
        )
        add_gauge(registry, f"{what}_survivable", text, (what,), as_numbers(verdicts))
    text = (
        "What can still start at most before the loss of any one node leaves VMs without room, by "
        "sums; negative: short."
    )
    add_gauge(registry, "failover_capacity", text, ("resource",), found.capacity)
    text = "Virtual machines that do not restart after the loss of their node."
    add_gauge(registry, "vms_without_failover", text, ("cause",), found.without)
    text = "Virtual machines that do not restart after the loss of their zone."
    add_gauge(registry, "zone_vms_without_failover", text, ("zone",), found.zone_vms)
    if found.spare_nodes is not None:
        text = (
            "How many nodes may be lost at most, whichever they are, before the room is short, by "
            "sums."
        )
        add_gauge(registry, "failover_spare_nodes", text, (), {(): found.spare_nodes})
    if found.largest is not None:
        text = "Memory of the largest virtual machine that finds a node now."
        add_gauge(registry, "failover_largest_vm_bytes", text, (), {(): found.largest})
    text = (
        "Until the last virtual machine restarts after the loss of the node where that takes "
        "longest."
    )
    bounds: dict[str, float] = {}
    if found.seconds is not None:
        high = found.seconds.high
        bounds = {"low": found.seconds.low, "high": math.inf if high is None else high}
    add_gauge(registry, "failover_seconds", text, ("bound",), bounds)


# --- on the page ----------------------------------------------------------------------------------


def with_failover(page: Page, found: FailoverFigures | None) -> Page:
    """Return the page with the failover that is left; as it is before the first figures."""
    if found is None:
        return page
    down = sum(verdict is False for verdict in found.nodes.values())
    rows: list[tuple[Cell, ...]] = [
        (name, "no" if found.nodes[name] is False else "unknown", reason)
        for name, reason in not_survived(found)
    ]
    rows += [
        (
            f"zone {zone}",
            "no" if verdict is False else "unknown",
            count(found.zone_vms.get(zone, 0), "VM"),
        )
        for zone, verdict in found.zones.items()
        if verdict is not True
    ]
    columns = ("Lost", "Survives", "Because")
    table = Table("Losses that the cluster does not certainly survive", columns, tuple(rows))
    return replace(
        page,
        tiles=(*page.tiles, Tile(BAD, down, "nodes whose loss leaves VMs down")),
        tables=(*page.tables, table) if rows else page.tables,
        notes=(*page.notes, ("Failover", tuple(_lines(found)))),
    )


def _lines(found: FailoverFigures) -> Iterator[str]:
    if found.spare_nodes is None or MEMORY not in found.capacity:
        yield "The room after a loss of nodes cannot be determined."
    else:
        room = found.capacity[MEMORY]
        left = amount(MEMORY, room) if room >= 0 else f"nothing, {amount(MEMORY, -room)} is short"
        yield (
            "Can still start before the loss of any one node leaves VMs without room: at most "
            f"{left}."
        )
        yield f"By sums, {count(found.spare_nodes, 'node')} may be lost, whichever they are."
    if found.largest is not None:
        yield f"The largest VM that finds a node now has {show(MEMORY, found.largest)} of memory."
    lacking = [f"{cause} {number}" for cause, number in found.without.items() if number]
    if lacking:
        yield f"VMs without failover, by cause: {', '.join(lacking)}."
    for zone, number in found.zone_vms.items():
        if number:
            yield f"VMs that do not restart after the loss of zone {zone}: {number}."
    if found.seconds is not None:
        yield f"The slowest restart after the loss of one node: {period(found.seconds)}."
