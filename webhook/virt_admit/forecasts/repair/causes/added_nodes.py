"""Nodes that have to be added where VMs find no room: copies in memory of a node that exists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.repair import controllers, repair_plan
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CSI_NODE, DAEMON_SET, NODE
from virt_admit.model.kubernetes.nodes import HOSTNAME, SCHEDULABLE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import find
from virt_admit.model.messages import count
from virt_admit.model.scheduler.controller_taints import MEDIK8S

_PASSING: Final = ("node.kubernetes.io/", "kubevirt.io/", *MEDIK8S)
_PLAIN: Final = ("cpu", "memory", "pods", "ephemeral-storage")


def step(model: Object, number: int, cluster: Cluster) -> repair_plan.RepairStep:
    """Return the step that adds so many nodes like one that exists,
    without its local volumes and devices.
    """
    subject = repair_plan.ObjectRef(NODE, "", model.name)
    title = f"add {count(number, 'node')} like {model.name}"
    made = [made for index in range(1, number + 1) for made in _clone(model, index, cluster)]
    return repair_plan.RepairStep(
        id=f"add-nodes:{model.name}",
        stage=repair_plan.PlanStage.ROOM,
        title=title,
        subject=subject,
        cost=repair_plan.StepCost(repair_plan.CostClass.DECISION),
        takes_effect=repair_plan.TakesEffect.PERSON,
        changes=(
            repair_plan.ObjectChange(
                subject, repair_plan.Command.PERSON, text=f"{title} with its size and labels"
            ),
        ),
        risk="its local volumes and devices are not part of the new nodes",
        predicted=tuple(made),
    )


def _clone(model: Object, index: int, cluster: Cluster) -> Iterator[Object]:
    name = f"{model.name}-added-{index}"
    labels = {**model.metadata["labels"].map, SCHEDULABLE: "true"} | (
        {HOSTNAME: name} if HOSTNAME in model.metadata["labels"].map else {}
    )
    status = dict(model["status"].map)
    if isinstance(status.get("allocatable"), dict):
        status["allocatable"] = {
            key: value for key, value in status["allocatable"].items() if _is_usual(key)
        }
    status["conditions"] = [_ready(item.value) for item in model.at("status", "conditions").items()]
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    yield Object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": controllers.tainted(model, _lasts, "unschedulable", "providerID"),
            "status": status,
        }
    )
    yield from _daemons(model, name, cluster)
    csi = find(cluster, CSI_NODE, "", model.name)
    if csi is not None:
        yield Object({**csi.data, "metadata": {"name": name}})


def _lasts(taint: Field) -> bool:
    return not (taint["key"].text or "").startswith(_PASSING)


def _daemons(model: Object, name: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods that DaemonSets make on a node like another one, as far as those are ready:
    without them no driver would serve it.
    """
    for pod in entry(cluster, evicted_pods.by_node, model.name) or ():
        if pod.owned_by(DAEMON_SET.kind) and pod.is_true("Ready"):
            own = f"{pod.name}-{name}"
            metadata = {**pod.metadata.map, "name": own, "uid": own}
            spec = {**pod["spec"].map, "nodeName": name}
            yield Object({**pod.data, "metadata": metadata, "spec": spec})


def is_size(cause: str) -> bool:
    """Return whether a node does not take a VM for want of something that an added node has."""
    resource, _, rest = cause.partition(": ")
    return rest.endswith("missing") and _is_usual(resource)


def _is_usual(resource: str) -> bool:
    return resource in _PLAIN or resource.startswith(("devices.kubevirt.io/", "hugepages-"))


def _ready(condition: Any) -> Any:
    if isinstance(condition, dict) and condition.get("type") == "Ready":
        return {**condition, "status": "True"}
    return condition
