"""The report of ``virt-admit plan``: what its JSON says, as one frozen value,
and the answer of all its forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from virt_admit.forecasts.repair.repair_plan import (
    Command,
    CostClass,
    Goal,
    ObjectRef,
    OtherWay,
    Patched,
    PlannedCheck,
    Proof,
    RepairPlan,
    RepairStep,
    RootProblem,
    StepCost,
    TakesEffect,
)
from virt_admit.model.messages import capital, count


@dataclass(frozen=True, slots=True)
class PlanObject:
    """An object of the cluster."""

    apiVersion: str  # noqa: N815 - the key of Kubernetes
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ShownBy:
    """An object on which the problem shows, and the rule that says so (empty: a forecast does)."""

    rule: str
    object: PlanObject


@dataclass(frozen=True, slots=True)
class PlannedProblem:
    """One cause at one root object."""

    id: str
    cause: str
    subject: PlanObject
    owner: str
    """The namespace of its owner; empty: the cluster administrator."""
    nodes: tuple[str, ...]
    reason: str
    shown_by: tuple[ShownBy, ...]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change of one object."""

    object: PlanObject
    command: Command
    patch: tuple[dict[str, Any], ...]
    """A JSON Patch: ``test`` operations first."""
    inverse: tuple[dict[str, Any], ...]
    fields: tuple[str, ...]
    """The fields that the patch touches."""
    manifest: dict[str, Any] | None
    """A new object."""
    arguments: tuple[str, ...]
    """Of ``virtctl``."""
    text: str
    """What a person has to do, or to know."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of the plan."""

    id: str
    stage: int
    title: str
    subject: PlanObject
    cost: StepCost
    changes: tuple[PlannedChange, ...]
    solves: tuple[str, ...]
    frees: tuple[str, ...]
    owner: str
    needs: tuple[str, ...]
    preconditions: tuple[PlannedCheck, ...]
    takes_effect: TakesEffect
    verify: tuple[PlannedCheck, ...]
    undo: tuple[str, ...]
    risk: str
    gitops: str
    proof: Proof
    finding: str
    """The verdict after the step where it does not flip."""
    alternatives: tuple[OtherWay, ...]


@dataclass(frozen=True, slots=True)
class Unsolved:
    """A problem without a step that ends it, and why."""

    id: str
    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """What the whole plan costs."""

    steps: int
    gib: int
    restarts: int
    migrations: int
    decisions: int
    owners: tuple[str, ...]
    """The namespaces whose owners have to agree."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The plan for one cluster."""

    version: Literal[1]
    goal: Goal
    holds: bool | None
    """Whether the goal holds today. Null: it rests on data that could not be read."""
    reaches: bool | None
    """Whether it holds after the steps."""
    steps: tuple[PlannedStep, ...]
    problems: tuple[PlannedProblem, ...]
    remaining: tuple[Unsolved, ...]
    unseen: tuple[str, ...]
    totals: PlanTotals
    nodes: tuple[str, ...]
    """The nodes that were judged."""
    notes: tuple[str, ...]
    """What the goal costs once it holds."""


def report(plan: RepairPlan) -> PlanReport:
    """Return the report of a plan."""
    return PlanReport(
        version=1,
        goal=plan.goal,
        holds=plan.holds,
        reaches=plan.reaches,
        steps=tuple(map(_step, plan.steps)),
        problems=tuple(map(_problem, plan.problems)),
        remaining=tuple(
            Unsolved(each.problem.id, each.problem.reason, each.why) for each in plan.remaining
        ),
        unseen=plan.unseen,
        totals=totals(plan.steps),
        nodes=plan.nodes,
        notes=plan.notes,
    )


def totals(steps: Iterable[RepairStep]) -> PlanTotals:
    """Return what steps cost together."""
    every = list(steps)
    return PlanTotals(
        steps=len(every),
        gib=sum(step.cost.gib for step in every),
        restarts=sum(step.cost.class_ is CostClass.RESTART for step in every),
        migrations=sum(step.cost.class_ in (CostClass.MIGRATION, CostClass.COPY) for step in every),
        decisions=sum(step.cost.class_ is CostClass.DECISION for step in every),
        owners=tuple(sorted({step.owner for step in every if step.owner})),
    )


def object_of(subject: ObjectRef) -> PlanObject:
    return PlanObject(subject.kind.api_version, subject.kind.kind, subject.namespace, subject.name)


def _problem(problem: RootProblem) -> PlannedProblem:
    shown = tuple(ShownBy(witness.rule, object_of(witness.subject)) for witness in problem.shown_by)
    name, subject = (problem.id, problem.cause), object_of(problem.subject)
    return PlannedProblem(*name, subject, problem.owner, problem.nodes, problem.reason, shown)


def _step(step: RepairStep) -> PlannedStep:
    return PlannedStep(
        id=step.id,
        stage=int(step.stage),
        title=step.title,
        subject=object_of(step.subject),
        cost=step.cost,
        changes=tuple(map(_change, step.patched)),
        solves=step.solves,
        frees=step.frees,
        owner=step.owner,
        needs=step.needs,
        preconditions=step.preconditions,
        takes_effect=step.takes_effect,
        verify=step.verify,
        undo=tuple(undo(step)),
        risk=step.risk,
        gitops=step.gitops,
        proof=step.proof,
        finding=step.finding,
        alternatives=step.alternatives,
    )


def _change(made: Patched) -> PlannedChange:
    change = made.change
    return PlannedChange(
        object=object_of(change.subject),
        command=change.command,
        patch=tuple(operation.as_json() for operation in made.patch),
        inverse=tuple(operation.as_json() for operation in made.undo),
        fields=tuple(
            dict.fromkeys(str(operation.path) for operation in made.patch if operation.op != "test")
        ),
        manifest=dict(change.manifest) if change.manifest is not None else None,
        arguments=change.arguments,
        text=change.text,
    )


def undo(step: RepairStep) -> Iterable[str]:
    """Yield how each change of a step is taken back, the last one first."""
    for made in reversed(step.patched):
        change = made.change
        if change.command is Command.PATCH and made.undo:
            yield f"apply the inverse patch to {change.subject}"
        elif change.command is Command.VIRTCTL and step.takes_effect is TakesEffect.RESTART:
            yield f"restart {change.subject} again after its patch is taken back"


# --- the answer -----------------------------------------------------------------------------------


def answer(plan: RepairPlan) -> str:
    """Return the first line: what the steps reach, and what they cost."""
    what = _goal(plan)
    if plan.holds:
        if not plan.notes:
            return f"Nothing to do: {what}."
        return (
            f"{capital(what)} as it is, but not without downtime.{_cost_of_goal(plan)} Make that "
            "room before, or accept it."
        )
    if plan.holds is None and not plan.steps:
        return f"Cannot be determined: whether {what}."
    if not plan.steps:
        return f"No step is known after which {what}: {count(len(plan.remaining), 'problem')} left."
    found = totals(plan.steps)
    where = f" in {count(len(found.owners), 'namespace')}" if found.owners else ""
    more = sum(step.cost.pods for step in plan.steps)
    costs = [
        words
        for number, words in (
            (found.restarts, count(found.restarts, "restart")),
            (found.gib, f"{found.gib} GiB copied"),
            (found.decisions, count(found.decisions, "decision")),
            (more, count(more, "more pod")),
        )
        if number
    ]
    cost = f": {', '.join(costs)}" if costs else ""
    head = f"{count(found.steps, 'step')}{where}"
    one = found.steps == 1
    if plan.reaches:
        return f"{head} {'makes' if one else 'make'} {_made(plan)}{cost}.{_cost_of_goal(plan)}"
    spent = f" ({', '.join(costs)})" if costs else ""
    if plan.reaches is None:
        return (
            f"{head}{spent}: whether {'it makes' if one else 'they make'} {_made(plan)} cannot be "
            "determined."
        )
    left = f"{count(len(plan.remaining), 'problem')} left"
    return f"{head}{spent} {'does' if one else 'do'} not make {_made(plan)}: {left}."


_MOST_NOTES: Final = 3


def _cost_of_goal(plan: RepairPlan) -> str:
    more = len(plan.notes) - _MOST_NOTES
    return "".join(f" {note}" for note in plan.notes[:_MOST_NOTES]) + (
        f" {more} more: see -o json." if more > 0 else ""
    )


def _goal(plan: RepairPlan) -> str:
    if plan.goal is Goal.UPGRADE:
        return "the upgrade is possible"
    if plan.goal is Goal.OUTAGE:
        return "the loss of any one node is survived"
    nodes = f"node {plan.nodes[0]}" if len(plan.nodes) == 1 else f"all {len(plan.nodes)} nodes"
    return f"{nodes} can be drained"


def _made(plan: RepairPlan) -> str:
    if plan.goal is Goal.UPGRADE:
        return "the upgrade possible"
    if plan.goal is Goal.OUTAGE:
        return "the cluster survive the loss of any one node"
    if len(plan.nodes) == 1:
        return f"node {plan.nodes[0]} drainable"
    return f"all {len(plan.nodes)} nodes drainable"
