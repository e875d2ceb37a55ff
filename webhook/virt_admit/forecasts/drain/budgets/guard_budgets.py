"""Budgets of OpenShift's guard pods: one control-plane node may be down at a time.

A guard pod is ready while the static pod beside it is: its probe asks that component. A cordoned
node gets no new guard pod. The guard of a member that has left etcd is never ready again, and
nothing removed it before OpenShift 4.12. Sources:
openshift/library-go:pkg/operator/staticpod/controller/guard/guard_controller.go#syncGuard;
openshift/cluster-etcd-operator, pull request 923.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.budgets import waiting_pods
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    OperatorAnswer,
    PodEviction,
    Way,
    is_schedulable,
    node_of,
    selected_labels,
)
from virt_admit.forecasts.placement.starts import static_pods
from virt_admit.model import machine_nodes
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import names
from virt_admit.model.remediation import control_plane
from virt_admit.model.remediation.etcd_guard import ETCD

READS: Final[Reads] = union(
    machine_nodes.READS,
    control_plane.READS,
    static_pods.READS,
    waiting_pods.READS,
    {NODE: ("metadata.labels", "spec.unschedulable"), MACHINE: ()},
)

_SUFFIX: Final = "-guard-pdb"
_GUARD: Final = "-guard-"
_ETCD: Final = "etcd"
_LIMIT: Final = "only one control-plane node may be down at a time"


def is_guard_pod(pod: Object) -> bool:
    """Return whether an operator of OpenShift makes this pod, which has no owner."""
    return pod.labels.get("app") == "guard" and _GUARD in pod.name


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
    component = eviction.budget.name.removesuffix(_SUFFIX)
    selected = list(eviction.selected)
    down = [pod for pod in selected if not pod.is_true("Ready") and node_of(pod)]
    if down:
        return _down(component, sorted(down, key=node_of), eviction)
    guarded = {node_of(pod) for pod in selected}
    bare = sorted(each.name for each in eviction.cluster.list(NODE) if nodes.is_control_plane(each))
    bare = [name for name in bare if name not in guarded]
    cordoned = [name for name in bare if not is_schedulable(name, eviction.cluster)]
    if cordoned:
        return _bare(cordoned, eviction.cluster)
    if returned := static_pods.returned(bare, component, eviction.cluster):
        return OperatorAnswer(Way.WAITS, f"{returned}, and {_LIMIT}", passes=True)
    where = names(bare) or "another control-plane node"
    reason = f"{component} has no guard on {where}, and {_LIMIT}"
    return OperatorAnswer(
        Way.NOW, reason, "Wait until all control-plane nodes are Ready, or repair them."
    )


def _down(component: str, guards: Sequence[Object], eviction: PodEviction) -> OperatorAnswer:
    """Return what makes guards ready that are not, or that they never are again."""
    down = list(dict.fromkeys(map(node_of, guards)))
    gone = control_plane.left(eviction.cluster) if component == _ETCD else frozenset()
    away = [name for name in down if not is_schedulable(name, eviction.cluster)]
    if gone.issuperset(down) and away == down:
        return _of_removed(guards, eviction)
    if motion := static_pods.motion(component, guards, eviction.cluster):
        return OperatorAnswer(Way.WAITS, f"{motion}, and {_LIMIT}", passes=True)
    reason = f"{component} on {names(down)} is not ready, and {_LIMIT}"
    leaving = {on: machine for on, machine in _leaving(eviction.cluster).items() if on in down}
    if leaving:
        reason = f"{reason}. {_deleted(leaving)}"
    if component == _ETCD and leaving.keys() == set(down):
        remedy = (
            "Wait until the operator of etcd has removed its members and guards there, or "
            "check that operator."
        )
        return OperatorAnswer(Way.NOW, reason, remedy)
    there = names(name for name in down if name not in gone)
    on = f"on {there}" if gone.intersection(down) else "there"
    return OperatorAnswer(Way.NOW, reason, f"Repair {component} {on}, or wait until it is ready.")


def _of_removed(guards: Sequence[Object], eviction: PodEviction) -> OperatorAnswer:
    """Return that only the deletion of guards lets the drains of their own nodes go on: their
    members have left etcd, and no new guard comes while these nodes are cordoned.
    """
    whose = names(pod.name for pod in guards)
    several, status = len(guards) > 1, eviction.budget["status"]
    gone = list(dict.fromkeys(map(node_of, guards)))
    leaving = {
        node: each.partition("/")[2]
        for node, each in _leaving(eviction.cluster).items()
        if node in gone
    }
    removed = "their members have" if several else "its member has"
    reason = (
        f"{whose} {'are' if several else 'is'} never ready again: {removed} been removed from etcd"
        f"{f' ({_deleted(leaving)})' if leaving else ''}, so "
        f"{status['currentHealthy'].integer or 0} guards are ready and "
        f"{status['desiredHealthy'].integer or 0} are wanted"
    )
    if eviction.node not in gone:
        return OperatorAnswer(Way.NOW, reason, _removal_first(gone, leaving))
    these = "these guards" if several else "this guard"
    delete = shell("kubectl", "delete", "pod", *(argument(pod.name) for pod in guards), "-n", ETCD)
    remedy = typed(
        "Check that all other members of etcd are healthy",
        shell("kubectl", "describe", "clusteroperator", "etcd"),
        f"then delete {these} ({delete}); OpenShift 4.12 does so itself",
    )
    return OperatorAnswer(Way.NOW, reason, remedy)


def _removal_first(gone: Sequence[str], leaving: Mapping[str, str]) -> str:
    """Return what lets the drain of another node go on: not the deletion of a guard that is never
    ready, as the number of guards that is wanted follows from that of the control-plane nodes.
    """
    those = f"Machine{'s' * (len(leaving) > 1)} {names(sorted(leaving.values()))}"
    until = f"{those} {'are' if len(leaving) > 1 else 'is'} gone" if leaving else ""
    them = f"{names(gone)} {'have' if len(gone) > 1 else 'has'} left the cluster"
    drain = shell("virt-admit", "drain", argument(gone[0]))
    return typed(f"Wait until {until or them}: see what keeps {names(gone)}", drain)


def _bare(cordoned: Sequence[str], cluster: Cluster) -> OperatorAnswer:
    """Return that cordoned nodes have no guard: one comes back with the uncordon, or the node goes
    with its Machine.
    """
    reason = f"{names(cordoned)} is cordoned and without its guard, and {_LIMIT}"
    deleted = {on: machine for on, machine in _leaving(cluster).items() if on in cordoned}
    updated = [by for name in cordoned if (by := waiting_pods.updater(name, cluster))]
    if not deleted and len(updated) == len(cordoned):
        return _updated(cordoned, updated, reason, cluster)
    if not deleted:
        finish = f"Finish the maintenance of {names(cordoned)} first"
        return OperatorAnswer(
            Way.NOW, reason, f"{finish}: the guard returns when the node is uncordoned."
        )
    space, _, first = next(iter(deleted.values())).partition("/")
    remedy = typed(
        f"Do not uncordon {names(deleted)}: see what holds that deletion, with which the node goes",
        kubectl("describe", MACHINE, first, space),
    )
    return OperatorAnswer(Way.NOW, f"{reason}. {_deleted(deleted)}", remedy)


def _updated(
    cordoned: Sequence[str], updated: Sequence[str], reason: str, cluster: Cluster
) -> OperatorAnswer:
    """Return that what updates cordoned nodes uncordons them itself, with which the guards return:
    that is to be waited for, and not done by hand.
    """
    back = f"{names(cordoned)} {'are' if len(cordoned) > 1 else 'is'} back"
    soon = waiting_pods.rebooters(cordoned, cluster)
    them = "them" if len(cordoned) > 1 else "it"
    by = soon or f"{names(dict.fromkeys(updated))} updates {them}"
    reason = f"{reason}. That ends once {back}: {by}"
    return OperatorAnswer(
        Way.NOW, reason, f"Wait until {back}.", tuple(cordoned), passes=bool(soon)
    )


def _deleted(machines: Mapping[str, str]) -> str:
    """Return that Machines are being deleted."""
    several = len(machines) > 1
    verb = "are" if several else "is"
    return f"Machine{'s' * several} {names(sorted(machines.values()))} {verb} being deleted"
