"""What a person does to the nodes so that a VM finds one: more of them, the end of a remediation, a
bridge that others have.

Added nodes are copies in memory of one that exists. A marker offers a bridge once it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.repair import controllers
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    CostClass,
    ObjectChange,
    ObjectRef,
    PlannedCheck,
    PlanStage,
    RepairStep,
    StepCost,
    TakesEffect,
)
from virt_admit.model import node_bridges
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CSI_NODE, DAEMON_SET, NODE
from virt_admit.model.kubernetes.nodes import HOSTNAME, SCHEDULABLE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import find
from virt_admit.model.messages import count
from virt_admit.model.remediation import fence_taints
from virt_admit.model.scheduler.controller_taints import MEDIK8S

_PASSING: Final = ("node.kubernetes.io/", "kubevirt.io/", *MEDIK8S)
_PLAIN: Final = ("cpu", "memory", "pods", "ephemeral-storage")


def added(model: Object, number: int, cluster: Cluster) -> RepairStep:
    """Return the step that adds so many nodes like one that exists,
    without its local volumes and devices.
    """
    title = f"add {count(number, 'node')} like {model.name}"
    made = [made for index in range(1, number + 1) for made in _clone(model, index, cluster)]
    risk = "its local volumes and devices are not part of the new nodes"
    way = f"{title} with its size and labels"
    return _by_hand(f"add-nodes:{model.name}", model, title, way, risk, made)


def _by_hand(
    name: str,
    node: Object,
    title: str,
    way: str,
    risk: str,
    predicted: Iterable[Object],
    *verify: PlannedCheck,
) -> RepairStep:
    """Return a step with this id that a person takes on a node."""
    subject = ObjectRef.of(NODE, node)
    return RepairStep(
        id=name,
        stage=PlanStage.ROOM,
        title=title,
        subject=subject,
        cost=StepCost(CostClass.DECISION),
        takes_effect=TakesEffect.PERSON,
        changes=(ObjectChange(subject, Command.PERSON, text=way),),
        verify=verify,
        risk=risk,
        predicted=tuple(predicted),
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


# --- a remediation that has not finished ----------------------------------------------------------


def remediated(node: Object, cluster: Cluster) -> RepairStep:
    """Return the step after which the taints of a fencing are gone: its remediation ends, or they
    are removed by hand.

    Such a node reports again, and takes no VMs until then.
    """
    fence = fence_taints.left(node, cluster)
    left = [taint.value for taint in fence.every] if fence is not None else []
    spec = controllers.tainted(node, lambda taint: taint.value not in left)
    for_what = fence_taints.waits_for(node.name, cluster)
    waits = f": it waits for {for_what}" if for_what else ""
    title = "finish the remediation of the node"
    way = f"finish its remediation{waits}; then its taints go"
    if fence is not None and fence_taints.is_by_hand(node.name, cluster):
        title = "remove the taint of the fencing"
        way = ": ".join(fence_taints.way_out(node.name, fence, cluster))
    query = ("get", "node", node.name, "-o=jsonpath={.spec.taints}")
    risk = "first see that the node is healthy, and why it was fenced"
    freed, gone = Object({**node.data, "spec": spec}), PlannedCheck("the taints are gone", query)
    return _by_hand(f"remediated:{node.name}", node, title, way, risk, (freed,), gone)


# --- bridges --------------------------------------------------------------------------------------

_OFFERED: Final = "1k"
"""What a marker offers of each bridge (kubevirt/bridge-marker:pkg/marker)."""


def bridged(target: SchedulingTarget, cluster: Cluster) -> Iterator[RepairStep]:
    """Yield the step for the first node that lacks nothing but a bridge, which others have.

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
            yield _bridged(
                node, resource, node_bridges.remedy(node_bridges.bridge(resource), others, cluster)
            )


def _is_bridge(why: str) -> bool:
    resource, _, rest = why.partition(": ")
    return bool(node_bridges.bridge(resource)) and rest.endswith(" missing") and "; " not in rest


def _bridged(node: Object, resource: str, words: str) -> RepairStep:
    allocatable = {**node.at("status", "allocatable").map, resource: _OFFERED}
    path = resource.replace(".", "\\.")
    query = ("get", "node", node.name, f"-o=jsonpath={{.status.allocatable.{path}}}")
    risk = "the port of the bridge must reach the same network as on the other nodes"
    status = {**node["status"].map, "allocatable": allocatable}
    offers = Object({**node.data, "status": status})
    check = PlannedCheck("the node offers the bridge", query)
    return _by_hand(f"bridge:{resource}:{node.name}", node, words, words, risk, (offers,), check)
