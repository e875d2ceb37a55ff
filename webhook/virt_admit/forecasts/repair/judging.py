"""Whether a goal holds in a cluster, and what keeps it from holding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.repair import found_problems, surviving
from virt_admit.forecasts.repair.causes.shared_objects import POOL_KINDS
from virt_admit.forecasts.repair.repair_plan import Goal, ObjectRef, RootProblem, Witness
from virt_admit.forecasts.upgrade.rehearsal import Options, Stop, rehearse
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, LONGHORN_VOLUME, NODE, VM, Kind
from virt_admit.model.problems import ProblemCause

UNDETERMINED: Final = "CannotBeDetermined"
"""The cause of a VM whose outcome is unknown: no step is made for it."""


@dataclass(frozen=True, slots=True)
class GoalJudgement:
    """The answer about one cluster."""

    holds: bool | None
    problems: tuple[RootProblem, ...]
    drainable: Mapping[str, bool | None]
    """By node: whether it can be drained, or whether its loss is survived."""
    unseen: tuple[str, ...]
    rows: Mapping[ObjectRef, Forecast]
    """The forecast of each VMI."""
    notes: tuple[str, ...] = ()
    """What the goal costs although it holds: VMs that stay off until their node is back."""

    @property
    def by_vm(self) -> Mapping[ObjectRef, tuple[RootProblem, ...]]:
        """The problems of each VMI, by VMI."""
        found: dict[ObjectRef, list[RootProblem]] = {}
        for problem in self.problems:
            for vm in problem.vms:
                found.setdefault(vm, []).append(problem)
        return {vm: tuple(some) for vm, some in found.items()}

    @property
    def undetermined(self) -> tuple[RootProblem, ...]:
        """The VMs of which it cannot be said whether they leave their nodes although everything
        about them was read.
        """
        known = self.by_vm
        rows = [(vmi, row) for vmi, row in self.rows.items() if vmi not in known and not row.unseen]
        return tuple(
            RootProblem(
                UNDETERMINED,
                found_problems.root(row.vmi),
                (row.vmi.at("status", "nodeName").text or "",),
                row.reason,
                (Witness("", vmi),),
                remedy=row.remedy,
            )
            for vmi, row in sorted(rows, key=lambda item: item[0].full_name)
            if row.outcome is VmOutcome.UNKNOWN
        )


def judge(goal: Goal, cluster: Cluster, nodes: Sequence[str] = ()) -> GoalJudgement:
    """Return whether a goal holds.

    Args:
        goal: the goal.
        cluster: the cluster.
        nodes: the nodes to drain; none: all of them.

    Raises:
        LookupError: a node does not exist.
    """
    if goal is Goal.OUTAGE:
        found_outages, survived, problems = surviving.survival(cluster)
        return GoalJudgement(found_outages.survives, problems, survived, found_outages.unseen, {})
    plan = drain_plan.plan(cluster, *nodes)
    drainable = {node.name: node.drainable for node in plan.nodes}
    rows = {
        found_problems.vmi_subject(row.vmi): row for node in plan.nodes for row in node.forecasts
    }
    found = found_problems.of_plan(plan, cluster)
    if goal is Goal.DRAIN:
        waiting = tuple(note for node in plan.nodes for note in node.waiting)
        return GoalJudgement(plan.drainable, found, drainable, plan.unseen, rows, waiting)
    rehearsed = rehearse(cluster, Options(), forecast_only=True)
    blocking = {str(each.id) for node in plan.nodes for each in node.pods.blockers}
    stops = (
        *found,
        *_pools(cluster, rehearsed.stops),
        *_in_a_run(rehearsed.stops, {each.id for each in found} | blocking),
    )
    operators = (_operator(each) for each in rehearsed.operators if each.holds)
    held = (*(() if rehearsed.nodes_complete else stops), *operators)
    return GoalJudgement(
        rehearsed.possible, found_problems.merged(held), drainable, rehearsed.unseen, rows
    )


def _operator(held: StuckOperator) -> RootProblem:
    kind = next((each for each in kinds.ALL if each.kind == held.kind), None)
    subject = ObjectRef(kind or kinds.guess("v1", held.kind), held.namespace, held.name)
    cause = ProblemCause.COMPONENT
    return found_problems.of_object(cause, subject, (), held.reason, held.remedy)


def _pools(cluster: Cluster, stops: Sequence[Stop]) -> Iterator[RootProblem]:
    """Yield the pools that are not updated."""
    for stop in stops:
        if stop.problem is None or stop.problem.cause not in found_problems.POOL:
            continue
        named = [
            ObjectRef.of(kind, pool)
            for kind in POOL_KINDS
            for pool in cluster.known(kind)
            if (pool.namespace, pool.name) == stop.problem[1:]
        ]
        for subject in named[:1]:
            cause = stop.problem.cause
            yield found_problems.of_object(cause, subject, (), stop.reason, stop.remedy)


_KINDS: Final[Mapping[str, Kind]] = {
    ProblemCause.MACHINE_WAITS: CAPI_MACHINE,
    ProblemCause.VOLUME_DEGRADED: LONGHORN_VOLUME,
}
"""The kinds of what stops an upgrade besides pools, Nodes and VMs."""


def _in_a_run(stops: Sequence[Stop], known: Collection[str]) -> Iterator[RootProblem]:
    """Yield what stops a run although each node alone could be drained: VMs without room, nodes
    that are down or late.
    """
    for stop in stops:
        if (
            stop.problem is None
            or stop.problem.cause in found_problems.POOL
            or str(stop.problem) in known
        ):
            continue
        kind = _KINDS.get(stop.problem.cause, VM if stop.problem.namespace else NODE)
        subject = ObjectRef(kind, stop.problem.namespace, stop.problem.name)
        cause, on = stop.problem.cause, (stop.node,)
        yield found_problems.of_object(cause, subject, on, stop.reason, stop.remedy)
