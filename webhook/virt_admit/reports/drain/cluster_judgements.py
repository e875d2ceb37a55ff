"""The findings and the drains of a cluster that changes, kept from one round to the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from virt_admit.forecasts.drain import drain_plan, progress
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan, node_plan
from virt_admit.forecasts.upgrade import node_drain
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.kube.frozen_cache import Changes
from virt_admit.model.kubernetes.cluster import Cluster, keep
from virt_admit.model.kubernetes.json_codec import identical
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.reports.drain import html, report
from virt_admit.reports.findings.incremental import Judgements, differences, steady
from virt_admit.reports.html.page import Page

log = logging.getLogger(__name__)


class ClusterJudgements(Judgements):
    """Findings and drains. Both are equal to those of a full judgement."""

    def plans_of_changed(self, changes: Changes, seconds: float) -> Iterator[NodePlan]:
        """Yield the plans of nodes that changed themselves, until so much time has passed."""
        started = time.monotonic()
        for name in changed_nodes(changes):
            yield node_plan(name, self.view)
            if time.monotonic() - started >= seconds:
                return

    def advance(self, interrupted: Callable[[], bool]) -> bool:
        """Make the plan of one node after the other, until interrupted.

        Returns:
            Whether the plans of all nodes are made. Those that are made stay when the next call
            continues.
        """
        for name in drain_plan.node_names(self.view):
            if interrupted():
                return False
            node_plan(name, self.view)
        return True

    def plan(self) -> Plan:
        """Return the plan of the drains of all nodes."""
        return self.view.cached(drain_plan.plan)

    def page(self) -> Callable[[], Page]:
        """Return what makes the page of that plan, at any later time and in any thread."""
        return partial(html.page, self.plan(), self.view.cached(html.placed))

    def seconds(self) -> Mapping[str, Range]:
        """Return how long a drain of each node lasts from now, as far as it ends."""
        return self.view.cached(_seconds)

    def differences(self, full: ClusterJudgements) -> int:
        """Return in how many results these judgements are not equal to others of the same
        cluster.
        """
        nodes = {each.name: report.node_report(each) for each in self.plan().nodes}
        expected = {each.name: report.node_report(each) for each in full.plan().nodes}
        every = nodes.keys() | expected.keys()
        wrong = sorted(name for name in every if nodes.get(name) != expected.get(name))
        others = (self.page()() != full.page()()) + (self.seconds() != full.seconds())
        number = len(wrong) + differences(self.report(), full.report()) + others
        if number:
            log.error("judgements were not up to date", extra={"number": number, "nodes": wrong})
        return number


def changed_nodes(changes: Changes) -> list[str]:
    """Return the names of nodes of which more than a heartbeat changed.

    A node that came or went is none.
    """
    pairs = (changes.get(NODE) or {}).items()
    return [
        name
        for (_, name), (before, after) in pairs
        if before is not None and after is not None
        if not identical(steady(NODE, before.data), steady(NODE, after.data))
    ]


def _seconds(cluster: Cluster) -> Mapping[str, Range]:
    names = [node.name for node in cluster.cached(drain_plan.plan).nodes]
    key = "seconds of a drain"
    found = {name: keep(cluster, (key, name), partial(_of_node, name)) for name in names}
    return {name: length for name, length in found.items() if length is not None}


def _of_node(name: str, cluster: Cluster) -> Range | None:
    pods = progress.remaining(name, cluster).pods
    return node_drain.remaining(node_plan(name, cluster), len(pods), cluster)
