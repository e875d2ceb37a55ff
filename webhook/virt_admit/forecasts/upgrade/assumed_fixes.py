"""What would stop an upgrade after other causes were removed: problems are taken as fixed,
layer by layer.

The smallest repair is assumed: a VM that cannot migrate migrates, one without room leaves its node,
a pool is free, a pod is gone. Nothing is said about how to get there; that is what
``virt-admit plan`` is for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.rollouts import Pool
from virt_admit.model.kubevirt.settings.parallel_migrations import MigrationLimits
from virt_admit.model.messages import did_you_mean, names
from virt_admit.model.problems import ProblemCause, ProblemId, problem_of

MOST_LAYERS: Final = 20
"""Runs of the simulation that look for stops behind stops."""
_ROOM: Final = (
    ProblemCause.NO_ROOM,
    ProblemCause.NO_OTHER_NODE,
    ProblemCause.NO_NODE_READY,
    ProblemCause.NO_TARGET,
    ProblemCause.HOST_MODEL,
)
"""Causes whose smallest repair is that the VM is not there."""


@dataclass(frozen=True, slots=True)
class IfFixed:
    """How the upgrade goes if problems are fixed."""

    possible: bool | None
    """None: it cannot be determined."""
    duration: Range | None


# --- the cluster with the fixes -------------------------------------------------------------------


def fixed_plan(plan: Plan, fixed: Collection[ProblemId]) -> Plan:
    """Return the drains of all nodes as if these problems were fixed."""
    if fixed:
        return replace(plan, nodes=tuple(_fixed_node(node, fixed) for node in plan.nodes))
    return plan


def _fixed_node(node: NodePlan, fixed: Collection[ProblemId]) -> NodePlan:
    blockers = tuple(blocker for blocker in node.pods.blockers if blocker.id not in fixed)
    forecasts = tuple(_fixed_vm(row, fixed) for row in node.forecasts)
    return replace(node, forecasts=forecasts, pods=replace(node.pods, blockers=blockers))


def _fixed_vm(row: Forecast, fixed: Collection[ProblemId]) -> Forecast:
    if any(problem_of(cause, row.vmi) in fixed for cause in _ROOM):
        return replace(row, outcome=VmOutcome.STOPS, problems=())
    if row.outcome is not VmOutcome.BLOCKS:
        return row
    left = tuple(problem for problem in row.problems if problem.id not in fixed)
    if left or not row.problems:
        return replace(row, problems=left)
    return replace(row, outcome=VmOutcome.MIGRATES, problems=())


def fixed_pools(pools: Iterable[Pool], fixed: Collection[ProblemId]) -> tuple[Pool, ...]:
    """Return the pools as if these problems were fixed."""
    return tuple(_fixed_pool(pool, fixed) for pool in pools)


def _fixed_pool(pool: Pool, fixed: Collection[ProblemId]) -> Pool:
    again = tuple(failure.node for failure in pool.failing if failure.problem in fixed)
    failing = tuple(failure for failure in pool.failing if failure.problem not in fixed)
    free = pool.obstacle is not None and pool.obstacle.problem in fixed
    return replace(
        pool, nodes=(*again, *pool.nodes), failing=failing, obstacle=None if free else pool.obstacle
    )


def fixed_limits(limits: MigrationLimits, fixed: Collection[ProblemId]) -> MigrationLimits:
    """Return limits that let a migration start, if that is one of the fixes."""
    if not any(each.cause == ProblemCause.NO_MIGRATION for each in fixed):
        return limits
    return replace(limits, cluster=max(limits.cluster, 1), node=max(limits.node, 1))


# --- names ----------------------------------------------------------------------------------------


def select(
    wanted: Iterable[str],
    known: Collection[ProblemId],
    of_rule: Callable[[str], Collection[str] | None],
) -> frozenset[ProblemId]:
    """Return the problems that these words name: ids, rules,
    or ``namespace/name`` of what has them.

    Args:
        wanted: the words.
        known: all problems.
        of_rule: returns the ids of the problems that a rule finds; None: there is no such rule.

    Raises:
        LookupError: a word names no problem. The message has those that are near.
    """
    found: set[ProblemId] = set()
    for word in wanted:
        ids = _named(word, known)
        if not ids:
            shown = of_rule(word)
            ids = {each for each in known if str(each) in (shown or ())}
            if shown is not None and not ids:
                raise LookupError(f"rule {word} finds no problem that stops the upgrade")
        if not ids:
            raise LookupError(_unknown(word, known))
        found |= ids
    return frozenset(found)


def _named(word: str, known: Collection[ProblemId]) -> set[ProblemId]:
    return {each for each in known if word in (str(each), str(each).partition(":")[2])}


def _unknown(word: str, known: Collection[ProblemId]) -> str:
    words = sorted({text for each in known for text in (str(each), str(each).partition(":")[2])})
    near = did_you_mean(word, words)
    hint = (
        f". Did you mean {near}?"
        if near
        else f". Problems: {names(sorted(map(str, known)))}"
        if known
        else ""
    )
    return (
        f"{word} is neither a problem that stops the upgrade, nor a rule, nor an object that has "
        f"one{hint}"
    )


def known_problems(plan: Plan, pools: Iterable[Pool]) -> Iterator[ProblemId]:
    """Yield the problems that are known without a run of the simulation."""
    for node in plan.nodes:
        yield from (blocker.id for blocker in node.pods.blockers)
        for row in node.forecasts:
            yield from (problem.id for problem in row.problems if problem.id is not None)
    for pool in pools:
        for held in (*pool.failing, pool.obstacle):
            if held is not None and held.problem is not None:
                yield held.problem
