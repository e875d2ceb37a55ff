"""The report about one node as text: its drain, then its loss."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.model.kubernetes import clock
from virt_admit.model.sanitize import indented
from virt_admit.reports.columns import table
from virt_admit.reports.drain import text as drain_text
from virt_admit.reports.drain.words import cost, yes
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.judged_rules import JudgedRule
from virt_admit.reports.explain.node.collect import NodeForecasts
from virt_admit.reports.explain.node.report import NodeReport, UpgradeOfNode
from virt_admit.reports.explain.said_once import LONGEST, Said, once, without_remedy
from virt_admit.reports.explain.vm.repetitions import ABOVE
from virt_admit.reports.explain.vm.text import rules, titled
from virt_admit.reports.outage import text as outage_text
from virt_admit.reports.upgrade.text import span

UNKNOWN: Final = "cannot be determined"
UNLIKE: Final = "Unlike all other nodes of its role"


def text(found: NodeForecasts, unreadable: Collection[str] = ()) -> str:
    """Return the report as text."""
    plan, outage, report = found
    drained = drain_text.text(
        Plan((plan,), whole=False, methods=None, updates=(), unseen=()),
        clock.now(outage.loss.cluster),
    )
    lines = ["Drain", *(f"  {line}" if line else "" for line in drained.splitlines()), ""]
    if report.node.vms is None:
        lines += [f"  whether more VMs run on it {UNKNOWN}", ""]
    title = "Loss: the node stops reporting and does not come back"
    lost_vms = _without_told(outage_text.of_loss(outage), drained.splitlines())
    lines += titled(title, tuple(lost_vms))
    said = tuple(Said(ABOVE, line.strip().removeprefix(_TODO)) for line in lines)
    lines += _section("Upgrade of the cluster", table(upgrade(report, said)))
    lines += _section(UNLIKE, table(differences(report)))
    lines += _section("Rules", table(rules(_shorter(report.rules, said))))
    lines += titled("Commands", report.commands)
    lines += titled("Not available", rights.lines(report.unseen, unreadable))
    return "\n".join(map(indented, lines)).rstrip("\n") + "\n"


_TODO: Final = "to do: "


def _without_told(lines: Iterable[str], drained: Iterable[str]) -> Iterator[str]:
    """Yield lines with a reference in place of long remedies that the drain has told."""
    told = {_plain(line) for line in drained}
    for line in lines:
        is_told = line.strip().startswith(_TODO) and len(line) > LONGEST and _plain(line) in told
        yield f"{line.partition(_TODO)[0]}{_TODO}{ABOVE}" if is_told else line


def _plain(line: str) -> str:
    return line.strip().rstrip(".").casefold()


def _shorter(
    judged: tuple[JudgedRule, ...] | None, said: Sequence[Said]
) -> tuple[JudgedRule, ...] | None:
    """Return what the rules say, without the causes and remedies that were told above."""
    if judged is None:
        return None
    remedies = [each.text for each in said]
    return tuple(
        replace(rule, message=once(without_remedy(rule.message, remedies), said)) for rule in judged
    )


def _section(title: str, lines: Iterator[str]) -> list[str]:
    found = list(lines)
    return [title, *found, ""] if found else []


def _begin(found: UpgradeOfNode) -> tuple[str, str]:
    if found.start is None:
        return "begun", "its drain, maintenance or update is under way"
    if not found.before_nodes or found.start.high:
        return "begins after", span(found.start)
    return "begins after", "the operators" if "operators" in found.before_nodes else "that"


def differences(report: NodeReport) -> Iterator[tuple[str, str]]:
    """Yield in what the node differs from the others, and what they have."""
    for each in report.differences:
        yield each.what, f"{_value(each.own)} (theirs: {_value(each.others)})"


def _value(text: str | None) -> str:
    return "none" if text is None else text or "empty"


def _yes(stopped: int) -> str:
    """Return that an upgrade is possible, with its cost as ``upgrade`` and ``drain`` say it."""
    return f"{yes(stopped).lower()}:{cost(stopped)}" if stopped else "yes"


def upgrade(report: NodeReport, said: Sequence[Said] = ()) -> Iterator[tuple[str, str]]:
    """Yield the place of the node in an upgrade. ``said``: what the report has told above."""
    found = report.upgrade
    yield "possible", {True: _yes(found.stays_stopped), False: "no", None: UNKNOWN}[found.possible]
    if found.because is not None and found.because not in found.stops:
        notes = (Said(ABOVE, note) for note in report.drain.notes)
        yield "because", _told(found.because, (*said, *notes))
    if found.before_nodes is not None:
        yield "first", found.before_nodes
    if found.end is not None and found.possible is not False:
        yield _begin(found)
        yield "ends after", span(found.end)
    if found.takes_no_vm is not None:
        yield "takes VMs", f"none now: {once(found.takes_no_vm, said)}"
    for stop in found.stops:
        subject, colon, why = stop.partition(": ")
        yield "stops here", f"{subject}{colon}{_told(why, said)}"


def _told(why: str, said: Sequence[Said]) -> str:
    """Return a reason, or of one that stands above its first statement: which it is."""
    told = once(why, said)
    return f"{_STATEMENT.split(why, maxsplit=1)[0]}: {ABOVE}" if told == ABOVE else told


_STATEMENT: Final = re.compile(r", (?:so|as|because) |[:;] | \(")
"""What ends the statement with which a reason begins."""
