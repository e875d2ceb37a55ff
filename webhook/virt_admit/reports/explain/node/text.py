"""The report about one node as text: its drain, then its loss."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.sanitize import indented
from virt_admit.reports.columns import table
from virt_admit.reports.drain import text as drain_text
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.node.collect import NodeForecasts
from virt_admit.reports.explain.node.report import NodeReport
from virt_admit.reports.explain.vm.text import rules, titled
from virt_admit.reports.outage import text as outage_text
from virt_admit.reports.upgrade.text import span

UNKNOWN: Final = "cannot be determined"


def text(found: NodeForecasts, unreadable: Collection[str] = ()) -> str:
    """Return the report as text."""
    plan, outage, report = found
    drained = drain_text.text(
        Plan((plan,), whole=False, methods=None, updates=(), unseen=()), clock.now(outage.loss.cluster)
    )
    lines = ["Drain", *(f"  {line}" if line else "" for line in drained.splitlines()), ""]
    if report.node.vms is None:
        lines += [f"  whether more VMs run on it {UNKNOWN}", ""]
    cluster = outage.loss.cluster
    lost = node_health.silent_for(plan.name, cluster) if virt_handlers.is_lost(cluster, plan.name) else ""
    known = [f"{plan.name} {lost}: times count from its loss"] if lost and outage.vms else []
    lines += titled("Loss: the node stops reporting and does not come back", (*known, *outage_text.of_loss(outage)))
    lines += _section("Upgrade of the cluster", table(upgrade(report)))
    lines += _section("Rules", table(rules(report.rules)))
    lines += titled("Commands", report.commands)
    lines += titled("Not available", rights.lines(report.unseen, unreadable))
    return "\n".join(map(indented, lines)).rstrip("\n") + "\n"


def _section(title: str, lines: Iterator[str]) -> list[str]:
    found = list(lines)
    return [title, *found, ""] if found else []


def _unless_told(reason: str, notes: Sequence[str]) -> str:
    """Return a reason without the words after a colon that a note of the drain has already."""
    parts = reason.split(": ")
    for end in range(1, len(parts)):
        words = ": ".join(parts[end:])
        if len(words) > _SHORT and any(words in note for note in notes):
            return f"{': '.join(parts[:end]).removesuffix(' is reporting')} (see above)"
    return reason


_SHORT: Final = 40
"""Characters that may stand twice."""


def upgrade(report: NodeReport) -> Iterator[tuple[str, str]]:
    """Yield the place of the node in an upgrade."""
    found = report.upgrade
    yield "possible", {True: "yes", False: "no", None: UNKNOWN}[found.possible]
    if found.because is not None and found.because not in found.stops:
        yield "because", _unless_told(found.because, report.drain.notes)
    if found.end is not None:
        yield ("begins after", span(found.start)) if found.start is not None else ("begun", "yes, it is under way")
        yield "ends after", span(found.end)
    for stop in found.stops:
        yield "stops here", stop
