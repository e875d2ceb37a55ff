"""A health check that refuses to act after a node loss: the change that lets it act."""

from __future__ import annotations

from virt_admit.forecasts.outage import health_actors
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.remediation.coverage import CHECKS
from virt_admit.forecasts.remediation.reactivation import Reactivation
from virt_admit.forecasts.repair import queries, repair_plan
from virt_admit.forecasts.repair.causes import added_health_check
from virt_admit.model.kubernetes.cluster import Cluster


def step(problem: repair_plan.RootProblem, cluster: Cluster) -> repair_plan.RepairStep | str:
    """Return the step that lets a health check act for a node, or why there is none.

    Where no health check exists, one is added.
    """
    if not any(cluster.known(kind) for kind in CHECKS):
        return added_health_check.step(problem, cluster)
    (node,) = problem.nodes
    actors = health_actors.coverage(node, Loss((node,), cluster)).actors
    changed = [
        found for actor in actors if (found := actor.reactivation) is not None and found.changes
    ]
    return _step(changed[0]) if changed else problem.remedy


def _step(found: Reactivation) -> repair_plan.RepairStep:
    subject = repair_plan.ObjectRef.of(found.check.kind, found.check.obj)
    edits = tuple(
        repair_plan.FieldEdit(path, repair_plan.REMOVED if value is None else value)
        for path, value in found.changes
    )
    return repair_plan.RepairStep(
        id=f"health-check:{subject.full_name}",
        stage=repair_plan.PlanStage.SETTINGS,
        title=found.words,
        subject=subject,
        cost=repair_plan.StepCost(repair_plan.CostClass.DECISION),
        changes=(repair_plan.ObjectChange(subject, repair_plan.Command.PATCH, edits),),
        verify=(queries.check("the health check has the new values", subject, edits),),
        risk=found.risk,
    )
