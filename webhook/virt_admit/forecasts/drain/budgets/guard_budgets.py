"""Budgets of OpenShift's guard pods: one control-plane node may be down at a time.

A guard pod is ready while the static pod beside it is: its probe asks that component. A cordoned node gets no new guard
pod. Source: openshift/library-go:pkg/operator/staticpod/controller/guard/guard_controller.go#syncGuard.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.budgets.operator_eviction import (
    GOES,
    OperatorAnswer,
    PodEviction,
    Way,
    is_ready,
    is_schedulable,
    node_of,
    selected_labels,
)
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names

READS: Final[Reads] = {NODE: ("metadata.labels", "spec.unschedulable")}

_SUFFIX: Final = "-guard-pdb"
_LIMIT: Final = "only one control-plane node may be down at a time"


def is_guard(budget: Object) -> bool:
    return budget.name.endswith(_SUFFIX) and selected_labels(budget).get("app") == "guard"


def guard(eviction: PodEviction) -> OperatorAnswer:
    """Return which component on which node is down already, or which other node is in maintenance."""
    if eviction.allowed:
        return GOES
    component = eviction.budget.name.removesuffix(_SUFFIX)
    selected = list(eviction.selected)
    down = sorted({node_of(pod) for pod in selected if not is_ready(pod)} - {""})
    if down:
        reason = f"{component} on {names(down)} is not ready, and {_LIMIT}"
        return OperatorAnswer(Way.NOW, reason, f"Repair {component} there, or wait until it is ready.")
    guarded = {node_of(pod) for pod in selected}
    bare = sorted(each.name for each in eviction.cluster.list(NODE) if nodes.is_control_plane(each))
    bare = [name for name in bare if name not in guarded]
    cordoned = [name for name in bare if not is_schedulable(name, eviction.cluster)]
    if cordoned:
        reason = f"{names(cordoned)} is cordoned and without its {component} guard, and {_LIMIT}"
        remedy = f"Finish the maintenance of {names(cordoned)} first: the guard returns when the node is uncordoned."
        return OperatorAnswer(Way.NOW, reason, remedy)
    where = names(bare) or "another control-plane node"
    reason = f"{component} has no guard on {where}, and {_LIMIT}"
    return OperatorAnswer(Way.NOW, reason, "Wait until all control-plane nodes are Ready, or repair them.")
