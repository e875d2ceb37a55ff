"""The loop of ``virt-admit watch``: judge again what read something that changed,
and all of it once an hour.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.forecasts.drain.ongoing_drains import OngoingDrain, ongoing
from virt_admit.forecasts.upgrade import estimate_basis
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.install.manifests import FORECAST_READS
from virt_admit.kube import vm_ledger_feed
from virt_admit.kube.field_filter import retained_fields
from virt_admit.kube.frozen_cache import Changes, FrozenCache
from virt_admit.kube.informers import LiveCluster
from virt_admit.model.kubernetes import clock, webhook_bundles
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD, VM, VMI, VMIM
from virt_admit.model.kubevirt.instances import down_vms
from virt_admit.model.node_updates import updaters
from virt_admit.policy.policy import Policy
from virt_admit.reports import scan_metrics, watch_page
from virt_admit.reports.cluster_writer import NotWritten
from virt_admit.reports.drain.cluster_judgements import ClusterJudgements
from virt_admit.reports.drain.drain_metrics import DrainMetrics
from virt_admit.reports.findings.judging import is_complete
from virt_admit.reports.findings.report import Report
from virt_admit.reports.html import page as pages
from virt_admit.reports.live_writer import LiveWriter
from virt_admit.reports.outage.failover_metrics import FailoverMetrics, with_failover
from virt_admit.rules import Rules
from virt_admit.serving.heap import freeze_heap
from virt_admit.serving.metrics import ProcessMetrics

log = logging.getLogger(__name__)

DEBOUNCE: Final = 0.5
"""Seconds between two looks at the cluster. Changes within this time are judged together."""
LONGEST_PAUSE: Final = 30.0
"""Seconds. The loop rests for a quarter of the time that it judged, and forecasts rest three times
as long as they took, at most this long.
"""
QUICK: Final = 0.2
"""Seconds. Forecasts that took longer come after the findings, so that they delay none; while they
are made, changes are looked for so often. The plans of nodes that changed themselves come before
the findings, for so long.
"""
YIELD: Final = 0.05
"""Seconds between two parts of forecasts that changes interrupt."""
FULL_INTERVAL: Final = 3600.0
"""Seconds between two full judgements, with which the others are compared."""
CLOCK_INTERVAL: Final = 60.0
"""Seconds after which what read the time or a heartbeat is judged again, if anything changed."""
DRAIN_INTERVAL: Final = 10.0
"""The same while a node is drained."""
UPGRADE_INTERVAL: Final = 60.0
"""Seconds between two estimates of an upgrade and of failover, at least."""
REST: Final = 19
"""Estimates rest so many times as long as they took:
so they take a twentieth of a processor at most.
"""

_OF_DRAINS: Final = frozenset(kind.resource for kind in (NODE, POD, VMI, VMIM))
"""Kinds without which the figures of drains stay as they were."""
_OF_GUESTS: Final = frozenset(kind.resource for kind in (VM, VMI))

WRITE_AGAIN: Final = 300.0
"""Seconds after which an unchanged judgement is written again, because Events expire."""
WRITE_RETRY: Final = 10.0
"""Seconds before a failed write is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The state of the cluster at one moment."""

    report: Report
    blockers: Mapping[str, int]
    drainable: Mapping[str, bool | None]
    bundles: Mapping[tuple[str, str], float]
    seconds: float
    complete: bool
    unreadable: frozenset[str]
    page: Callable[[], pages.Page]

    def gauges(self, upgrade: Range | None) -> CollectorRegistry:
        """Return the gauges of this judgement, and of an upgrade."""
        return scan_metrics.state_gauges(
            self.report, self.blockers, self.seconds, upgrade, self.bundles, self.drainable
        )


class _Judged(NamedTuple):
    """What was judged, and of which the forecasts are still to be made."""

    judgements: ClusterJudgements
    report: Report
    at: datetime.datetime
    started: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forecasts:
    """The drains of all nodes, as of one moment."""

    plan: Plan
    page: Callable[[], pages.Page]
    drains: tuple[OngoingDrain, ...]
    drain_seconds: Mapping[str, Range]
    """How long a drain of each node lasts from then, as far as it ends."""
    unreadable: frozenset[str]
    seconds: float
    """How long the forecasts took."""


def _upgrade_duration(cluster: Cluster) -> Range | None:
    options = Options(node_minutes=estimate_basis.node_minutes(None, cluster))
    return rehearse(cluster, options, forecast_only=True).duration


class Watch(Collector):
    """Judges the cluster, and shows the latest judgement as metrics and as a page.

    While a kind cannot be read, the figures of the last complete judgement stay: what is unseen is
    not absent.
    """

    def __init__(
        self,
        cluster: LiveCluster,
        rules: Rules,
        policy: Callable[[], Policy],
        metrics: ProcessMetrics,
    ) -> None:
        self._cluster, self._rules, self._policy = cluster, rules, policy
        self._frozen = FrozenCache(cluster)
        vm_ledger_feed.follow(self._frozen)
        self._looked_up = retained_fields(rules, FORECAST_READS)
        self._judgements: ClusterJudgements | None = None
        self._judged_by: object = None
        self._frozen_for: object = None
        self._timed = self._compared = -FULL_INTERVAL
        self._judged: _Judged | None = None
        """What was judged last, until its forecasts are made."""
        self._last: _Judged | None = None
        self._judged_for = 0.0
        self._forecasts: _Forecasts | None = None
        self._forecast_again = 0.0
        self._forecast_began: float | None = None
        """When the forecasts began that are not made yet."""
        self.latest: ClusterState | None = None
        self._shown = cache(CollectorRegistry)
        """Makes the gauges when they are asked for."""
        self._complete: ClusterState | None = None
        self._stamp: object = None
        self._page: tuple[object, object, tuple[str, ...], str] = (None, None, (), "")
        self._upgrade: Range | None = None
        self._estimate_again = 0.0
        metrics.follow_informers(cluster.informed)
        metrics.registry.register(self)
        self._drains = DrainMetrics(metrics.registry)
        self._failover = FailoverMetrics(metrics.registry)
        self._differences = scan_metrics.differences(metrics.registry)
        self._last_success = Gauge(
            scan_metrics.LAST_SUCCESS,
            "When the figures were last known to be complete.",
            registry=metrics.registry,
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the latest judgement (prometheus_client calls this)."""
        yield from self._shown().collect()

    def run(self, stopped: threading.Event) -> None:
        """Judge until the event is set. No error ends the loop."""
        while not stopped.is_set():
            try:
                self.look()
                self._freeze()
            except Exception:
                log.exception("the cluster could not be judged")
                self._stamp = self._judgements = self._judged = self._forecast_began = None
            rest = max(DEBOUNCE, min(self._judged_for / 4, LONGEST_PAUSE))
            stopped.wait(rest if self._forecast_began is None else YIELD)

    def _freeze(self) -> None:
        """Freeze what a full judgement made, once its forecasts are made too."""
        if self._judged is None and self._frozen_for is not self._judgements:
            freeze_heap()
            self._frozen_for = self._judgements

    def look(self) -> None:
        """Judge the cluster if something changed since the last call."""
        if self._cluster.missing:
            return
        policy, today, now = self._policy(), datetime.date.today(), self._now()
        # waits of drains end
        minute = now.replace(second=0, microsecond=0) if self._drains.under_way else None
        stamp = self._cluster.generation, self._cluster.server_version, policy, today, minute
        # before judging: a later failure may belong to a later state
        current = self._cluster.current
        self._drains.count_downtime(now, current=current)
        if stamp != self._stamp:
            self._judge(policy, today)
            self._stamp = stamp
        if self._judged is not None and time.monotonic() >= self._forecast_again:
            self._forecast(self._judged)
            self._estimate()
        if (
            self._judged is None
            and self._complete is not None
            and self._complete is self.latest
            and current
        ):
            self._last_success.set_to_current_time()

    def _judge(self, policy: Policy, today: datetime.date) -> None:
        """Judge what changed, and show the findings if the forecasts would delay them."""
        started = time.monotonic()
        judgements = self._changed(policy, today)
        if judgements is None:
            return
        now = datetime.datetime.now(datetime.UTC)
        judged = _Judged(judgements, judgements.report(), now, started)
        self._judged = self._last = judged
        self._judged_for = time.monotonic() - started
        earlier = self._forecasts
        if earlier is None or earlier.unreadable != self._frozen.unreadable:
            self._forecast_again = 0.0  # they may rest on what cannot be read any more
        elif earlier.seconds > QUICK:
            self._show(self._state(judged, earlier))

    def _forecast(self, judged: _Judged) -> None:
        """Make the forecasts of what was judged, and show them with its findings.

        A change interrupts them.
        """
        judgements, now = judged.judgements, time.monotonic()
        self._forecast_began = started = (
            now if self._forecast_began is None else self._forecast_began
        )
        if not judgements.advance(partial(self._has_to_look, now)):
            return
        plan = judgements.plan()
        found = _Forecasts(
            plan=plan,
            page=judgements.page(),
            drains=tuple(ongoing(plan, judgements.view)),
            drain_seconds=judgements.seconds(),
            unreadable=self._frozen.unreadable,
            seconds=time.monotonic() - started,
        )
        self._forecasts, self._judged, self._forecast_began = found, None, None
        rest = min(3 * found.seconds, LONGEST_PAUSE) if found.seconds > QUICK else 0
        self._forecast_again = time.monotonic() + rest
        self._show(self._state(judged, found))
        self._follow_drains(found)

    def _has_to_look(self, since: float) -> bool:
        """Return whether changes have to be judged before more forecasts are made,
        which goes on until they are old.
        """
        now, seen = time.monotonic(), self._stamp[0] if isinstance(self._stamp, tuple) else None
        waiting = now - since >= QUICK and self._cluster.generation != seen
        began = self._forecast_began
        return waiting and began is not None and now - began < LONGEST_PAUSE

    def _show_nodes(self, judgements: ClusterJudgements, changes: Changes) -> None:
        """Show the plans of nodes that changed themselves among the earlier ones of other nodes,
        before all else.
        """
        earlier, last = self._forecasts, self._last
        if earlier is None or last is None or earlier.unreadable != self._frozen.unreadable:
            return
        made = {plan.name: plan for plan in judgements.plans_of_changed(changes, QUICK)}
        nodes = tuple(made.get(node.name, node) for node in earlier.plan.nodes)
        if nodes != earlier.plan.nodes:
            self._forecasts = dataclasses.replace(earlier, plan=earlier.plan.with_nodes(nodes))
            self._show(self._state(last._replace(started=time.monotonic()), self._forecasts))

    def _state(self, judged: _Judged, forecasts: _Forecasts) -> ClusterState:
        report, plan, unreadable = judged.report, forecasts.plan, self._frozen.unreadable
        drains = forecasts.drains, forecasts.drain_seconds
        return ClusterState(
            report=report,
            blockers={node.name: node.blockers for node in plan.nodes},
            drainable={node.name: node.drainable for node in plan.nodes},
            bundles=webhook_bundles.expiry(judged.judgements.view),
            complete=is_complete(report, self._frozen, self._rules.kinds),
            unreadable=unreadable,
            page=lambda: watch_page.page(
                report, plan, forecasts.page(), unreadable, judged.at, *drains
            ),
            seconds=time.monotonic() - judged.started,
        )

    def _changed(self, policy: Policy, today: datetime.date) -> ClusterJudgements | None:
        """Return the judgements after everything that has changed, and compare them once an hour.

        None: nothing changed that a judgement read.
        """
        now = time.monotonic()
        compare = now - self._compared >= FULL_INTERVAL
        interval = DRAIN_INTERVAL if self._drains.under_way else CLOCK_INTERVAL
        time_passed = compare or now - self._timed >= interval
        changes = self._frozen.refresh()
        self._frozen.time = clock.stamp(self._cluster.now())
        known = self._judgements if self._judged_by == (policy, today) else None
        self._timed = now if time_passed else self._timed
        if known is not None and not known.change(changes, time_passed=time_passed) and not compare:
            return None
        if known is not None and not compare:
            self._show_nodes(known, changes)
        if known is None or compare:
            # results with another one are not equal
            of_today = known.policy if known is not None else policy.at(today)
            full = ClusterJudgements(self._frozen, self._rules, of_today, self._looked_up)
            self._differences.inc(known.differences(full) if known is not None else 0)
            self._judgements, self._judged_by, self._compared = full, (policy, today), now
        return self._judgements

    def _estimate(self) -> None:
        """Estimate an upgrade if the last estimate is old.

        This comes last, so that it delays no finding.
        """
        started = time.monotonic()
        if started >= self._estimate_again:
            self._upgrade = self._view.cached(_upgrade_duration)
            self._failover.estimate(self._view)
            self._estimate_again = time.monotonic() + max(
                UPGRADE_INTERVAL, REST * (time.monotonic() - started)
            )
            self._refresh_gauges()

    @property
    def _view(self) -> Cluster:
        """The cluster, with the values that the judgements share."""
        return self._judgements.view if self._judgements is not None else self._frozen

    def _now(self) -> datetime.datetime:
        """Return the API server's time, with which the times of objects are compared."""
        return self._cluster.now() or datetime.datetime.now(datetime.UTC)

    def _follow_drains(self, judged: _Forecasts) -> None:
        now = self._now()
        if _OF_DRAINS.isdisjoint(judged.unreadable):
            phases, names = updaters.phases(self._view), [node.name for node in judged.plan.nodes]
            self._drains.follow(judged.drains, names, judged.drain_seconds, phases, now)
        if _OF_GUESTS.isdisjoint(judged.unreadable):
            self._drains.follow_guests(self._view.cached(down_vms.runs), now)

    def _show(self, judged: ClusterState) -> None:
        self.latest = judged
        if judged.complete:
            self._complete = judged
        self._refresh_gauges()
        numbers = {"objects": len(judged.report.results), "seconds": round(judged.seconds, 3)}
        log.info("judged", extra=numbers)

    def _refresh_gauges(self) -> None:
        """Show the last complete judgement.

        While a later one is not complete, unknown drains are unknown.
        """
        complete, latest = self._complete, self.latest
        if complete is None or latest is None:
            return
        if latest is not complete:
            unknown: dict[str, bool | None] = dict.fromkeys(complete.drainable)
            complete = dataclasses.replace(complete, drainable=unknown | dict(latest.drainable))
        self._shown = cache(partial(complete.gauges, self._upgrade))

    def keep_written(self, writer: LiveWriter, stopped: threading.Event) -> None:
        """Write the latest judgement whenever there is a new one, until the event is set.

        Repeat what failed.
        """
        written: tuple[object, object] = (None, None)
        due = 0.0
        while not stopped.wait(DEBOUNCE):
            latest, started = self.latest, self._failover.started
            if latest is None or (
                written[0] is latest and written[1] is started and time.monotonic() < due
            ):
                continue
            try:
                writer.write(latest.report, latest.unreadable, started)
            except NotWritten as error:
                log.warning("reports could not be written", extra={"error": str(error)})
                stopped.wait(WRITE_RETRY)
            except Exception:
                log.exception("reports could not be written")
                stopped.wait(WRITE_RETRY)
            else:
                written, due = (latest, started), time.monotonic() + WRITE_AGAIN

    def checks(self) -> Mapping[str, str]:
        """Return the readiness checks; an empty value means the check passed."""
        missing = ", ".join(self._cluster.missing)
        return {
            "look-ups": f"not listed yet: {missing}" if missing else "",
            "judgement": "" if self.latest else "nothing is judged yet",
        }

    def page(self) -> str:
        """Return the page of the latest judgement. It says which kinds are outdated."""
        latest = self.latest
        if latest is None:
            return pages.render(watch_page.EMPTY)
        unknown = {
            each.kind for each in self._cluster.informed() if not each.current
        } - latest.unreadable
        outdated = tuple(sorted(unknown))
        judged, estimated, said, text = self._page
        failover = self._failover.latest
        if judged is not latest or estimated is not failover or said != outdated:
            text = pages.render(
                watch_page.outdated(with_failover(latest.page(), failover), outdated)
            )
            self._page = latest, failover, outdated, text
        return text
