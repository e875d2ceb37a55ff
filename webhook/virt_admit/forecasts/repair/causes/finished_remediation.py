"""Nodes that report again, and take no VMs until their remediation has finished."""

from __future__ import annotations

from virt_admit.forecasts.repair import controllers, repair_plan
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import fence_taints


def step(node: Object, cluster: Cluster) -> repair_plan.RepairStep:
    """Return the step after which the taints of a fencing are gone: its remediation ends, or they
    are removed by hand.
    """
    subject, fence = repair_plan.ObjectRef.of(NODE, node), fence_taints.left(node, cluster)
    left = [taint.value for taint in fence.every] if fence is not None else []
    spec = controllers.tainted(node, lambda taint: taint.value not in left)
    for_what = fence_taints.waits_for(node.name, cluster)
    waits = f": it waits for {for_what}" if for_what else ""
    title = "finish the remediation of the node"
    way = f"finish its remediation{waits}; then its taints go"
    if fence is not None and fence_taints.is_by_hand(node.name, cluster):
        title = "remove the taint of the fencing"
        way = ": ".join(fence_taints.way_out(node.name, fence, cluster))
    return repair_plan.RepairStep(
        id=f"remediated:{subject.full_name}",
        stage=repair_plan.PlanStage.ROOM,
        title=title,
        subject=subject,
        cost=repair_plan.StepCost(repair_plan.CostClass.DECISION),
        takes_effect=repair_plan.TakesEffect.PERSON,
        changes=(repair_plan.ObjectChange(subject, repair_plan.Command.PERSON, text=way),),
        verify=(
            repair_plan.PlannedCheck(
                "the taints are gone", ("get", "node", node.name, "-o=jsonpath={.spec.taints}")
            ),
        ),
        risk="first see that the node is healthy, and why it was fenced",
        predicted=(Object({**node.data, "spec": spec}),),
    )
