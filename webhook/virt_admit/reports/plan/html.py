"""The page of ``plan``: the answer, the steps in order, and what no step ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.repair.repair_plan import CostClass, RepairPlan, RepairStep
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.reports.html.causes import CauseItem, PageCause, worst_first
from virt_admit.reports.html.levels import BAD, GOOD, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.owners import Owners
from virt_admit.reports.html.page import Page, PageVerdict, Table, Tile
from virt_admit.reports.plan.report import answer, totals
from virt_admit.reports.plan.text import STAGES, cost

LEVEL_OF: Final = {
    CostClass.NOTHING: GOOD,
    CostClass.MIGRATION: GOOD,
    CostClass.COPY: NOTICE,
    CostClass.RESTART: SEVERE,
    CostClass.DECISION: UNKNOWN,
}
"""The color of each cost."""


def page(plan: RepairPlan, evidence: Iterable[tuple[str, str]] = (), subject: str = "") -> Page:
    """Return the page of a plan."""
    found = totals(plan.steps)
    tiles = (
        Tile(BAD, len(plan.remaining), "problems without a step"),
        Tile(SEVERE, found.restarts, "restarts"),
        Tile(UNKNOWN, found.decisions, "decisions"),
        Tile(NOTICE, found.gib, "GiB copied"),
        Tile(GOOD, found.steps, "steps"),
    )
    return Page(
        title="Plan",
        subject=subject,
        verdict=_verdict(plan),
        tiles=tiles,
        causes_title="Problems that no step ends",
        causes=worst_first(_remaining(plan)),
        tables=(_table(plan),) if plan.steps else (),
        notes=tuple((title, lines) for title, lines in _notes(plan) if lines),
        evidence=(("goal", str(plan.goal)), *evidence),
    )


def _verdict(plan: RepairPlan) -> PageVerdict:
    if plan.holds:
        return PageVerdict(GOOD, "Yes", answer(plan))
    if plan.reaches is None:
        return PageVerdict(UNKNOWN, "Unknown", answer(plan))
    level, word = (NOTICE, "Not today") if plan.reaches else (BAD, "No")
    return PageVerdict(level, word, answer(plan))


def _remaining(plan: RepairPlan) -> Iterator[PageCause]:
    for each in plan.remaining:
        problem = each.problem
        item = CauseItem(problem.subject.full_name, ", ".join(problem.nodes))
        yield PageCause(BAD, "not repaired", problem.cause, problem.reason, each.why, (item,))


def _table(plan: RepairPlan) -> Table:
    rows = tuple(
        (
            number,
            STAGES[step.stage],
            step.owner or "cluster",
            str(step.subject),
            step.title,
            cost(step),
            str(step.proof),
            names(step.frees),
        )
        for number, step in enumerate(plan.steps, start=1)
    )
    columns = ("Step", "Stage", "Owner", "Object", "Change", "Cost", "Proof", "Frees")
    return Table("Steps", columns, rows)


def _notes(plan: RepairPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "Risks", tuple(f"{step.subject}: {step.risk}" for step in plan.steps if step.risk)
    written = (step for step in plan.steps if step.gitops)
    yield "Written by other tools", tuple(f"{each.subject}: {each.gitops}" for each in written)
    ways = (
        (
            f"{step.subject}: {'decision: ' if other.decision else ''}{other.title} "
            f"({other.lower_because})"
        )
        for step in plan.steps
        for other in step.alternatives
    )
    yield "Other ways", tuple(ways)
    yield "Not available", plan.unseen


def split(plan: RepairPlan, owners: Owners, cluster: Cluster) -> dict[str, RepairPlan]:
    """Return the part of a plan for each owner of objects."""

    def of(step: RepairStep) -> str:
        if not owners.label:
            return step.subject.namespace
        found = find(cluster, *step.subject)
        return owners.of(found) if found is not None else ""

    every = {of(step) for step in plan.steps}
    return {
        owner: replace(
            plan,
            steps=tuple(step for step in plan.steps if of(step) == owner),
            remaining=tuple(
                each
                for each in plan.remaining
                if not owners.label and each.problem.subject.namespace == owner
            ),
        )
        for owner in sorted(every)
    }
