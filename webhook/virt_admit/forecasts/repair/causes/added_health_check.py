"""A health check for nodes after whose loss nothing frees their VMs.

Source: medik8s/node-healthcheck-operator:api/v1alpha1/nodehealthcheck_types.go.
"""

from __future__ import annotations

from typing import Any, Final

from virt_admit.forecasts.repair import repair_plan
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE, NHC, NODE, SNR_TEMPLATE
from virt_admit.model.kubernetes.nodes import WORKER

_NAME: Final = "virt-admit-workers"
_PHASE: Final = ("get", NHC.resource, _NAME, "-o=jsonpath={.status.phase}")


def step(problem: repair_plan.RootProblem, cluster: Cluster) -> repair_plan.RepairStep | str:
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
