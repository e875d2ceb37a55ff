"""The page about one node: its drain as ``drain`` shows it, and its loss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.forecasts.outage.lost_vms import LostVm
from virt_admit.forecasts.outage.outages import Outage
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.messages import sentence
from virt_admit.reports.drain import html as drain_html
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.node import text
from virt_admit.reports.explain.node.collect import NodeForecasts
from virt_admit.reports.explain.node.report import NodeReport
from virt_admit.reports.explain.vm.html import rule_causes
from virt_admit.reports.html.causes import CauseItem, PageCause, grouped, worst_first
from virt_admit.reports.html.levels import GOOD, LEVELS, SEVERE, UNKNOWN
from virt_admit.reports.html.page import Page, PageVerdict, Table
from virt_admit.reports.outage import text as outage_text
from virt_admit.reports.outage.html import LEVEL_OF as LEVEL_OF_LOSS


def page(
    found: NodeForecasts,
    cluster: Cluster | None,
    unreadable: Collection[str] = (),
    evidence: Iterable[tuple[str, str]] = (),
) -> Page:
    """Return the page of the report: that of ``drain`` for this node, with the loss added."""
    plan, outage, report = found
    state = drain_html.placed(cluster) if cluster is not None else None
    alone = Plan((plan,), whole=False, methods=None, updates=(), unseen=())
    drained = drain_html.page(alone, state, evidence)
    notes = (
        ("Commands", report.commands),
        ("Not available", tuple(rights.lines(report.unseen, unreadable))),
    )
    return replace(
        drained,
        title=f"Node {report.node.name}",
        verdict=_verdict(drained.verdict, outage, report),
        causes=worst_first((*drained.causes, *_lost(outage), *rule_causes(report.rules))),
        tables=(
            *drained.tables,
            Table(
                "Loss of the node",
                ("What follows",),
                tuple((line.strip(),) for line in outage_text.of_loss(outage)),
            ),
            Table("Upgrade of the cluster", ("Fact", "Value"), tuple(text.upgrade(report))),
            *_unlike(report),
        ),
        notes=(*drained.notes, *((title, lines) for title, lines in notes if lines)),
    )


def _unlike(report: NodeReport) -> Iterator[Table]:
    if rows := tuple(text.differences(report)):
        yield Table(text.UNLIKE, ("What", "Value"), rows)


_SURVIVES: Final = {True: GOOD, False: SEVERE, None: UNKNOWN}


def _verdict(drained: PageVerdict, outage: Outage, report: NodeReport) -> PageVerdict:
    """Return the verdict of the drain, with the color of the worse of drain and loss."""
    unread = report.node.vms is None or report.unseen
    levels = drained.level, _SURVIVES[outage.survives], UNKNOWN if unread else GOOD
    level = min(levels, key=LEVELS.index)
    words = {
        True: "The cluster survives its loss.",
        False: "The cluster does not survive its loss.",
    }
    lost = words.get(outage.survives, "Whether the cluster survives its loss cannot be determined.")  # type: ignore[arg-type]
    word = f"Drain: {drained.word[:1].lower()}{drained.word[1:]}"
    return PageVerdict(
        level, word, " ".join((drained.text, lost, *(f"{sentence(why)}" for why in outage.because)))
    )


def _lost(outage: Outage) -> Iterator[PageCause]:
    """Yield one cause for VMs with the same outcome, reason and remedy."""
    return grouped((_cause(vm), vm.vmi.name) for vm in outage.vms)


def _cause(vm: LostVm) -> PageCause:
    item, level = CauseItem(vm.vmi.full_name, vm.node), LEVEL_OF_LOSS[vm.outcome]
    word, where = str(vm.outcome), "after the loss of the node"
    return PageCause(level, word, where, sentence(vm.reason), vm.remedy, (item,))
