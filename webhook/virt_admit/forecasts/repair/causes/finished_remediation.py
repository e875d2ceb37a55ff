"""Nodes that report again, and take no VMs until their remediation has finished."""

from __future__ import annotations

from virt_admit.forecasts.repair.repair_plan import (
    Command,
    Cost,
    CostClass,
    ObjectChange,
    ObjectRef,
    PlanStage,
    RepairStep,
    StepCheck,
    TakesEffect,
)
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import fence_taints


def step(node: Object, cluster: Cluster) -> RepairStep:
    """Return the step after which the taints of a fencing are gone: its remediation ends, or they
    are removed by hand.
    """
    subject, fence = ObjectRef.of(NODE, node), fence_taints.left(node, cluster)
    left = [taint.value for taint in fence.every] if fence is not None else []
    kept = [taint.value for taint in node.at("spec", "taints").items() if taint.value not in left]
    spec = {key: value for key, value in node["spec"].map.items() if key != "taints"}
    for_what = fence_taints.waits_for(node.name, cluster)
    waits = f": it waits for {for_what}" if for_what else ""
    title, way = (
        "finish the remediation of the node",
        f"finish its remediation{waits}; then its taints go",
    )
    if fence is not None and fence_taints.is_by_hand(node.name, cluster):
        title, way = (
            "remove the taint of the fencing",
            ": ".join(fence_taints.way_out(node.name, fence, cluster)),
        )
    return RepairStep(
        id=f"remediated:{subject.full_name}",
        stage=PlanStage.ROOM,
        title=title,
        subject=subject,
        cost=Cost(CostClass.DECISION),
        takes_effect=TakesEffect.PERSON,
        changes=(ObjectChange(subject, Command.PERSON, text=way),),
        verify=(
            StepCheck(
                "the taints are gone", ("get", "node", node.name, "-o=jsonpath={.spec.taints}")
            ),
        ),
        risk="first see that the node is healthy, and why it was fenced",
        predicted=(Object({**node.data, "spec": spec | ({"taints": kept} if kept else {})}),),
    )
