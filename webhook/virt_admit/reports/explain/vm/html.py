"""The page about one VM."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from virt_admit.forecasts.drain.vm_events import EventEffect
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.messages import capital, ended
from virt_admit.reports.drain.html import LEVEL_OF
from virt_admit.reports.drain.words import in_words
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.judged_rules import JudgedRule
from virt_admit.reports.explain.vm import repetitions, text
from virt_admit.reports.explain.vm.repetitions import EVENTS
from virt_admit.reports.explain.vm.report import VmReport
from virt_admit.reports.html.causes import CauseItem, PageCause, worst_first
from virt_admit.reports.html.levels import BAD, GOOD, LEVELS, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.page import Cell, Page, PageVerdict, Table
from virt_admit.reports.outage.html import LEVEL_OF as LEVEL_OF_LOSS

LEVEL: Final[dict[str, str]] = {
    **{str(outcome): level for outcome, level in LEVEL_OF.items()},
    Reach.MIGRATED: GOOD,
    Reach.RESTARTED: NOTICE,
    Reach.STOPPED: SEVERE,
    Reach.RETRIED: BAD,
    Reach.NEVER: NOTICE,
    **{
        str(outcome): level
        for outcome, level in LEVEL_OF_LOSS.items()
        if outcome is not LossOutcome.OFF
    },
    EventEffect.RESTARTED: NOTICE,
    EventEffect.OFF: SEVERE,
    EventEffect.STAYS: GOOD,
    EventEffect.STARTS: GOOD,
    EventEffect.REFUSED: NOTICE,
    EventEffect.FAILS: NOTICE,
    EventEffect.NOT_RUNNING: NOTICE,
}
"""The color of each outcome of an event; of an unknown word: UNKNOWN."""
_OF_ACTION: Final = {"deny": BAD, "warn": NOTICE, "audit": NOTICE, "off": GOOD}
_UNDETERMINED: Final = "cannot be determined"


def page(
    report: VmReport, unreadable: Collection[str] = (), evidence: Iterable[tuple[str, str]] = ()
) -> Page:
    """Return the page of the report."""
    return Page(
        title=f"VM {report.vm.name}",
        subject=text.headline(report),
        verdict=_verdict(report),
        leading=(
            Table(
                "What would happen",
                ("Event", "Outcome", "Reason and what to do"),
                tuple(_events(report)),
            ),
            Table("Facts", ("Fact", "Value"), tuple(text.facts(report))),
            Table("Commands", ("Command",), tuple((command,) for command in report.commands)),
        ),
        causes_title="Rules",
        causes=worst_first(rule_causes(report.rules)),
        tables=tuple(table for table in _tables(report) if table.rows),
        notes=tuple((title, lines) for title, lines in _notes(report, unreadable) if lines),
        evidence=tuple(evidence),
    )


def _verdict(report: VmReport) -> PageVerdict:
    """Return what a drain does, with the color of the worst outcome of all events and rules."""
    found = {LEVEL.get(event.outcome, UNKNOWN) for event in report.events}
    judged = (rule.action if rule.unseen is None else "" for rule in report.rules or ())
    found |= {_OF_ACTION.get(action, UNKNOWN) for action in judged}
    found |= {UNKNOWN} if report.unseen or report.rules is None else set()
    level = min(found, key=LEVELS.index)
    drained = report.events[0]
    others = (event for event in report.events[1:] if LEVEL.get(event.outcome, UNKNOWN) == level)
    said = [f"{EVENTS[event.event]}: {in_words(event.outcome)}." for event in others]
    text = " ".join(map(capital, (ended(drained.reason), *said)))
    return PageVerdict(level, f"Drain: {repetitions.outcome(drained, report)}", text)


def _events(report: VmReport) -> Iterator[tuple[Cell, ...]]:
    if repetitions.rests(report):
        off = report.events[0]
        yield "all", in_words(off.outcome), f"{off.reason}.{_todo(off.remedy)}"
        return
    for event, outcome, reason, remedy in text.events(report):
        yield event, outcome, f"{reason}.{_todo(remedy)}"


def _todo(remedy: str) -> str:
    return f" To do: {remedy}." if remedy else ""


def rule_causes(rules: Iterable[JudgedRule] | None) -> Iterator[PageCause]:
    """Yield a cause for each finding of a rule,
    and one for the rules that could not read the same data.
    """
    unread: dict[str, list[CauseItem]] = {}
    for rule in rules or ():
        if rule.unseen is not None:
            unread.setdefault(rule.unseen, []).append(CauseItem(rule.rule))
        else:
            said = f"{rule.path}: {rule.message} Decided by: {rule.layer}."
            level, item = _OF_ACTION[rule.action], CauseItem(rule.object)
            yield PageCause(level, rule.action, rule.rule, said, items=(item,))
    for what, items in unread.items():
        said = f"These rules could not read {what}."
        yield PageCause(UNKNOWN, _UNDETERMINED, "", said, items=tuple(items))


def _tables(report: VmReport) -> Iterator[Table]:
    refused = tuple((each.node, virt_handlers.needs(each.what)) for each in report.short or ())
    yield Table(text.nodes_title(report), ("Node", "Why not"), refused)
    yield _table("Last migrations", _MIGRATION, text.migrations(report.migrations))
    columns = ("Budget", "Disruptions", "Effect")
    yield _table("Budgets that select its pod", columns, text.budgets(report.budgets))
    yield _table("Volumes", ("Volume", "Kind", "Claim", "State"), text.volumes(report.volumes))
    parts = tuple(text.control(report))
    yield Table("Parts of KubeVirt that a move needs", ("Part", "State", "Reason"), parts)


_MIGRATION: Final = (
    "Created",
    "Migration",
    "Phase",
    "From and to",
    "Asked for by",
    "Failure and times",
)


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    """Return a table with rows of one width: that nothing is known is a row with one cell."""
    return Table(title, columns, tuple((*row, *("",) * (len(columns) - len(row))) for row in rows))


def _notes(report: VmReport, unreadable: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "Notes", repetitions.notes(report, text.todo(report))
    yield "Avoid", report.avoid
    yield "Not available", tuple(rights.lines(report.unseen, unreadable))
