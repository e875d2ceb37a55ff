"""The report about one node as text: its drain, then its loss."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.remediation.remediation_steps import Span
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.messages import names
from virt_admit.model.sanitize import indented
from virt_admit.reports.drain import text as drain_text
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.node.report import CheckOfNode, NodeReport
from virt_admit.reports.explain.vm.text import columns, rules, titled
from virt_admit.reports.upgrade.text import span

UNKNOWN: Final = "cannot be determined"


def text(plan: NodePlan, report: NodeReport, unreadable: Collection[str] = ()) -> str:
    """Return the report as text."""
    drained = drain_text.text(Plan((plan,), whole=False, methods=None, updates=(), unseen=()))
    lines = ["Drain", *(f"  {line}" if line else "" for line in drained.splitlines()), ""]
    if report.node.vms is None:
        lines += [f"  whether more VMs run on it {UNKNOWN}", ""]
    lines += _section("Loss: the node stops reporting and does not come back", columns(list(loss(report))))
    lines += _section("Upgrade of the cluster", columns(list(upgrade(report))))
    lines += _section("Rules", columns(list(rules(report.rules))))
    lines += titled("Commands", report.commands)
    lines += titled("Not available", rights.lines(report.unseen, unreadable))
    return "\n".join(map(indented, lines)).rstrip("\n") + "\n"


def _section(title: str, lines: Iterator[str]) -> list[str]:
    found = list(lines)
    return [title, *found, ""] if found else []


def loss(report: NodeReport) -> Iterator[tuple[str, str, str]]:
    """Yield who confirms that the node is down, then the VMs, those with the same outcome and reason together."""
    covered = report.loss.covered
    if not report.loss.checks or not covered:
        word = UNKNOWN if covered is None else "nothing" if covered is False else "a health check"
        yield "confirmed down by", word, ""
    for check in report.loss.checks:
        yield "confirmed down by", f"{check.kind} {check.name}", _time(check)
    groups: dict[tuple[str, str], list[str]] = {}
    for vm in report.loss.vms:
        groups.setdefault((vm.outcome, vm.reason), []).append(f"{vm.namespace}/{vm.name}")
    for (outcome, reason), vms in groups.items():
        yield outcome, names(vms), reason


def _time(check: CheckOfNode) -> str:
    if check.restart is None:
        return f"never: {check.idle}" if check.idle else UNKNOWN
    low, high = check.restart.low, check.restart.high
    when = Span(low * SECOND, None if high is None else high * SECOND)
    return f"VMs can start elsewhere after {when}"


def upgrade(report: NodeReport) -> Iterator[tuple[str, str]]:
    """Yield the place of the node in an upgrade."""
    found = report.upgrade
    yield "possible", {True: "yes", False: "no", None: UNKNOWN}[found.possible]
    if found.start is not None and found.end is not None:
        yield "begins after", span(found.start)
        yield "ends after", span(found.end)
    for stop in found.stops:
        yield "stops here", stop
