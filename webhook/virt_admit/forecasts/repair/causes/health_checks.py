"""A health check that acts after a node loss: one that refuses to is changed, and where none
exists, one is added.

Source: medik8s/node-healthcheck-operator:api/v1alpha1/nodehealthcheck_types.go.
"""

from __future__ import annotations

from typing import Any, Final

from virt_admit.forecasts.outage import health_actors
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.remediation.coverage import CHECKS
from virt_admit.forecasts.remediation.reactivation import Reactivation
from virt_admit.forecasts.repair import queries, repair_plan
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE, NHC, NODE, SNR_TEMPLATE
from virt_admit.model.kubernetes.nodes import WORKER

_NAME: Final = "virt-admit-workers"
_PHASE: Final = ("get", NHC.resource, _NAME, "-o=jsonpath={.status.phase}")


def step(problem: repair_plan.RootProblem, cluster: Cluster) -> repair_plan.RepairStep | str:
    """Return the step that lets a health check act for a node, or why there is none.

    Where no health check exists, one is added.
    """
    if not any(cluster.known(kind) for kind in CHECKS):
        return _added(problem, cluster)
    (node,) = problem.nodes
    actors = health_actors.coverage(node, Loss((node,), cluster)).actors
    changed = [
        found for actor in actors if (found := actor.reactivation) is not None and found.changes
    ]
    return _reactivated(changed[0]) if changed else problem.remedy


def _reactivated(found: Reactivation) -> repair_plan.RepairStep:
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


def _added(problem: repair_plan.RootProblem, cluster: Cluster) -> repair_plan.RepairStep | str:
    """Return the step that makes a health check for worker nodes, or why that is not the repair."""
    templates = [obj for kind in (SNR_TEMPLATE, FAR_TEMPLATE) for obj in cluster.known(kind)]
    if not templates:
        return (
            "no health check and no remediation template exist: install an operator for health "
            "checks first"
        )
    node = cluster.get(NODE, "", problem.nodes[0])
    if node is None or WORKER not in node.labels:
        return "its node is not a worker: choose the nodes that a health check watches"
    template = templates[0]
    subject = repair_plan.ObjectRef(NHC, "", _NAME)
    reference = {
        "apiVersion": template.api_version,
        "kind": template.kind,
        "name": template.name,
        "namespace": template.namespace,
    }
    conditions = [
        {"type": "Ready", "status": status, "duration": "300s"} for status in ("False", "Unknown")
    ]
    manifest: dict[str, Any] = {
        "apiVersion": NHC.api_version,
        "kind": NHC.kind,
        "metadata": {"name": _NAME},
        "spec": {
            "minHealthy": "51%",
            "remediationTemplate": reference,
            "selector": {"matchLabels": {WORKER: ""}},
            "unhealthyConditions": conditions,
        },
    }
    return repair_plan.RepairStep(
        id=f"health-check:{_NAME}",
        stage=repair_plan.PlanStage.SETTINGS,
        title=f"let a NodeHealthCheck watch the workers, with {template.kind} {template.name}",
        subject=subject,
        cost=repair_plan.StepCost(repair_plan.CostClass.DECISION),
        changes=(repair_plan.ObjectChange(subject, repair_plan.Command.APPLY, manifest=manifest),),
        verify=(repair_plan.PlannedCheck("the health check is enabled", _PHASE, "Enabled"),),
        risk="a node that does not report for 5 minutes is remediated: its VMs restart elsewhere",
    )
