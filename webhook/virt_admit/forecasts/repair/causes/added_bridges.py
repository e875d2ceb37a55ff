"""Bridges that a VM needs and that another node does not have: a person makes one,
and its marker then offers it.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.repair import repair_plan
from virt_admit.model import node_bridges
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find

_OFFERED = "1k"
"""What a marker offers of each bridge (kubevirt/bridge-marker:pkg/marker)."""


def steps(target: SchedulingTarget, cluster: Cluster) -> Iterator[repair_plan.RepairStep]:
    """Yield the step for the first node that lacks nothing but a bridge.

    Another one may fail for the same policy.
    """
    lacking = {
        name: why.partition(": ")[0]
        for name, why in target.placement.refusals.items()
        if _is_bridge(why)
    }
    for name, resource in sorted(lacking.items())[:1]:
        node = find(cluster, NODE, "", name)
        if node is not None:
            others = [other for other, missing in lacking.items() if missing == resource]
            yield _step(
                node, resource, node_bridges.remedy(node_bridges.bridge(resource), others, cluster)
            )


def _is_bridge(why: str) -> bool:
    resource, _, rest = why.partition(": ")
    return bool(node_bridges.bridge(resource)) and rest.endswith(" missing") and "; " not in rest


def _step(node: Object, resource: str, words: str) -> repair_plan.RepairStep:
    subject = repair_plan.ObjectRef.of(NODE, node)
    status = node["status"].map
    allocatable = {**node.at("status", "allocatable").map, resource: _OFFERED}
    path = resource.replace(".", "\\.")
    return repair_plan.RepairStep(
        id=f"bridge:{resource}:{node.name}",
        stage=repair_plan.PlanStage.ROOM,
        title=words,
        subject=subject,
        cost=repair_plan.StepCost(repair_plan.CostClass.DECISION),
        takes_effect=repair_plan.TakesEffect.PERSON,
        changes=(repair_plan.ObjectChange(subject, repair_plan.Command.PERSON, text=words),),
        verify=(
            repair_plan.PlannedCheck(
                "the node offers the bridge",
                ("get", "node", node.name, f"-o=jsonpath={{.status.allocatable.{path}}}"),
            ),
        ),
        risk="the port of the bridge must reach the same network as on the other nodes",
        predicted=(Object({**node.data, "status": {**status, "allocatable": allocatable}}),),
    )
