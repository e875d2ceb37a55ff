"""A repair plan as text: the answer, then one numbered line for each step by stage,
and what no step ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.repair.repair_plan import (
    CostClass,
    PlanStage,
    Proof,
    RepairPlan,
    RepairStep,
)
from virt_admit.model.messages import count, names
from virt_admit.model.sanitize import indented
from virt_admit.reports.plan.report import answer
from virt_admit.reports.unavailable_data import not_available

STAGES: Final = {
    PlanStage.SETTINGS: "settings of the cluster",
    PlanStage.QUOTAS: "quotas, LimitRanges and budgets",
    PlanStage.LIVE: "changes of running VMs",
    PlanStage.ROOM: "nodes and room",
    PlanStage.COPIES: "copies of disks",
    PlanStage.RESTARTS: "restarts, node by node: cordon, restart, drain, uncordon",
    PlanStage.ROLLOUT: "roll-out",
}


def text(plan: RepairPlan) -> str:
    """Return a plan as text."""
    lines = [answer(plan)]
    stage = None
    for number, step in enumerate(plan.steps, start=1):
        if step.stage is not stage:
            stage = step.stage
            lines += ["", STAGES[stage][0].upper() + STAGES[stage][1:]]
        lines += _step(number, step)
    if plan.remaining:
        lines += ["", "Problems that no step ends:"]
        for each in plan.remaining:
            lines += [f"  {each.problem.id}: {each.problem.reason}", f"    {each.why}"]
    lines += not_available(plan.unseen)
    return "\n".join(map(indented, lines))


def summary(plan: RepairPlan) -> str:
    """Return the answer, and how many steps each stage and each owner has."""
    stages = Counter(step.stage for step in plan.steps)
    owners = Counter(step.owner or "cluster administrator" for step in plan.steps)
    lines = [answer(plan)]
    lines += [
        f"  {count(stages[stage], 'step')}: {STAGES[stage]}" for stage in PlanStage if stages[stage]
    ]
    lines += [f"  {owner}: {count(number, 'step')}" for owner, number in sorted(owners.items())]
    causes = Counter(each.problem.cause for each in plan.remaining)
    lines += [f"  not repaired: {cause} ({number})" for cause, number in sorted(causes.items())]
    lines += not_available(plan.unseen)
    return "\n".join(map(indented, lines))


def cost(step: RepairStep) -> str:
    """Return what a step costs, in a few words."""
    match step.cost.class_:
        case CostClass.COPY:
            return f"{step.cost.gib} GiB"
        case CostClass.RESTART:
            return f"restart, {step.cost.downtime} s"
        case CostClass.MIGRATION:
            return "migration"
        case CostClass.DECISION:
            return "decision"
    return count(step.cost.pods, "more pod") if step.cost.pods else "no cost"


def _step(number: int, step: RepairStep) -> Iterator[str]:
    """Yield the lines of a step.

    Its number is that of its script, as in the README of the folder.
    """
    frees = f" (frees {names(step.frees)})" if step.frees else ""
    subject = f"{step.subject.kind.kind} {step.subject.full_name}"
    yield f"  {number}. [{cost(step)}] {subject}: {step.title}{frees}"
    if step.proof in (Proof.DOES_NOT_FLIP, Proof.UNKNOWN):
        yield f"      {step.proof}: {step.finding}" if step.finding else f"      {step.proof}"
    if step.needs:
        yield f"      after: {', '.join(step.needs)}"
    if step.risk:
        yield f"      risk: {step.risk}"
    if step.gitops:
        yield f"      {step.gitops}"
    for other in step.alternatives:
        decision = "decision: " if other.decision else ""
        yield f"      or {decision}{other.title} ({other.lower_because})"
