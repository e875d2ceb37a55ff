"""Budgets of OpenShift's guard pods: one control-plane node may be down at a time.

A guard pod is ready while the static pod beside it is: its probe asks that component. A cordoned
node gets no new guard pod. Source:
openshift/library-go:pkg/operator/staticpod/controller/guard/guard_controller.go#syncGuard.
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
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    machine_nodes.READS, {NODE: ("metadata.labels", "spec.unschedulable"), MACHINE: ()}
)

_SUFFIX: Final = "-guard-pdb"
_ETCD: Final = "etcd"
_LIMIT: Final = "only one control-plane node may be down at a time"


def is_guard(budget: Object) -> bool:
    return budget.name.endswith(_SUFFIX) and selected_labels(budget).get("app") == "guard"


def _leaving(cluster: Cluster) -> dict[str, str]:
    """Return the Machines that are being deleted by node.

    A member leaves etcd then, so its guard is not ready again.

    Sources:
    openshift/cluster-etcd-operator:pkg/operator/clustermemberremovalcontroller/clustermemberremovalcontroller.go
    #attemptToScaleDown; pull request 923 of that repository.
    """
    deleted = (machine for machine in cluster.known(MACHINE) if machine.deleted)
    return {machine_nodes.node_name(machine, cluster): machine.full_name for machine in deleted}


def guard(eviction: PodEviction) -> OperatorAnswer:
    """Return which component on which node is down already,
    or which other node is in maintenance.
    """
    if eviction.allowed:
        return GOES
    component = eviction.budget.name.removesuffix(_SUFFIX)
    selected = list(eviction.selected)
    down = sorted({node_of(pod) for pod in selected if not is_ready(pod)} - {""})
    if down:
        reason = f"{component} on {names(down)} is not ready, and {_LIMIT}"
        leaving = {on: machine for on, machine in _leaving(eviction.cluster).items() if on in down}
        if leaving:
            several = len(leaving) > 1
            which = f"Machine{'s' * several} {names(sorted(leaving.values()))}"
            reason = f"{reason}. {which} {'are' if several else 'is'} being deleted"
        if component == _ETCD and leaving.keys() == set(down):
            remedy = (
                "Wait until the operator of etcd has removed its members and guards there, or "
                "check that operator."
            )
            return OperatorAnswer(Way.NOW, reason, remedy)
        return OperatorAnswer(
            Way.NOW, reason, f"Repair {component} there, or wait until it is ready."
        )
    guarded = {node_of(pod) for pod in selected}
    bare = sorted(each.name for each in eviction.cluster.list(NODE) if nodes.is_control_plane(each))
    bare = [name for name in bare if name not in guarded]
    cordoned = [name for name in bare if not is_schedulable(name, eviction.cluster)]
    if cordoned:
        reason = f"{names(cordoned)} is cordoned and without its {component} guard, and {_LIMIT}"
        remedy = (
            f"Finish the maintenance of {names(cordoned)} first: the guard returns when the node "
            "is uncordoned."
        )
        return OperatorAnswer(Way.NOW, reason, remedy)
    where = names(bare) or "another control-plane node"
    reason = f"{component} has no guard on {where}, and {_LIMIT}"
    return OperatorAnswer(
        Way.NOW, reason, "Wait until all control-plane nodes are Ready, or repair them."
    )
