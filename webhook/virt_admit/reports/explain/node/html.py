"""The page about one node: its drain as ``drain`` shows it, and its loss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.messages import count
from virt_admit.reports.drain import html as drain_html
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.node import text
from virt_admit.reports.explain.node.report import NodeReport
from virt_admit.reports.explain.vm.html import LEVEL, rule_causes
from virt_admit.reports.html.page import (
    GOOD,
    LEVELS,
    NOTICE,
    SEVERE,
    UNKNOWN,
    CauseItem,
    Page,
    PageCause,
    PageVerdict,
    Table,
    worst_first,
)


def page(
    plan: NodePlan,
    report: NodeReport,
    cluster: Cluster | None,
    unreadable: Collection[str] = (),
    evidence: Iterable[tuple[str, str]] = (),
) -> Page:
    """Return the page of the report: that of ``drain`` for this node, with the loss added."""
    drained = drain_html.page(Plan((plan,), whole=False, methods=None, updates=(), unseen=()), cluster, evidence)
    notes = (("Commands", report.commands), ("Not available", tuple(rights.lines(report.unseen, unreadable))))
    return replace(
        drained,
        title=f"Node {report.node.name}",
        verdict=_verdict(drained.verdict, report),
        causes=worst_first((*drained.causes, *_lost(report), *rule_causes(report.rules))),
        tables=(
            *drained.tables,
            Table("Loss of the node", ("Outcome", "Object", "Reason"), tuple(text.loss(report))),
            Table("Upgrade of the cluster", ("Fact", "Value"), tuple(text.upgrade(report))),
        ),
        notes=(*drained.notes, *((title, lines) for title, lines in notes if lines)),
    )


_COVERED: Final = {True: GOOD, False: SEVERE, None: UNKNOWN}


def _verdict(drained: PageVerdict, report: NodeReport) -> PageVerdict:
    """Return the verdict of the drain, with the color of the worse of drain and loss."""
    levels = {LEVEL.get(vm.outcome, UNKNOWN) for vm in report.loss.vms}
    if report.loss.vms:
        levels.add(_COVERED[report.loss.covered])
    levels |= {UNKNOWN} if report.node.vms is None or report.unseen else set()
    level = min((drained.level, *levels), key=LEVELS.index)
    off = [vm for vm in report.loss.vms if LEVEL.get(vm.outcome, UNKNOWN) != NOTICE]
    lost = f" After its loss {count(len(off), 'VM')} would not certainly start again." if off else ""
    return PageVerdict(level, f"Drain: {drained.word[:1].lower()}{drained.word[1:]}", f"{drained.text}{lost}")


def _lost(report: NodeReport) -> Iterator[PageCause]:
    for vm in report.loss.vms:
        level = LEVEL.get(vm.outcome, UNKNOWN)
        item = CauseItem(f"{vm.namespace}/{vm.name}", report.node.name)
        yield PageCause(level, vm.outcome, "after the loss of the node", vm.reason, vm.remedy, (item,))
