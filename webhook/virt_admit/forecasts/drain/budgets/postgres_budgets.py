"""Budgets of Zalando's Postgres operator, which select the master alone by default.

The operator moves the master off a node when that is cordoned, and gives up after
``master_pod_move_timeout``. A node that still has the labels of ``node_readiness_label`` counts as
ready although it is cordoned. Before release 1.6 nothing moved the master unless these were set.
Sources: zalando/postgres-operator:pkg/controller/node.go#nodeUpdate #nodeIsReady
#moveMasterPodsOffNode; pkg/cluster/pod.go#MigrateMasterPod;
pkg/cluster/k8sres.go#generatePrimaryPodDisruptionBudget #generateCriticalOpPodDisruptionBudget;
pkg/util/config/config.go; pull request 1162, issues 1400 and 1663.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.budgets import role_budgets
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    OperatorAnswer,
    PodEviction,
    Way,
    selected_labels,
)
from virt_admit.forecasts.drain.budgets.role_budgets import PodRole
from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import node_phases

READS: Final[Reads] = union(
    clock.READS,
    role_budgets.READS,
    {NODE: ("metadata.labels", "spec.taints", "spec.unschedulable")},
)
_CONFIGURATION: Final = kinds.guess("acid.zalan.do/v1", "OperatorConfiguration")
"""A snapshot may hold it. It is not read from a live cluster."""
_ROLE: Final = "spilo-role"
_CRITICAL: Final = "critical-operation"
_CLUSTER: Final = "cluster-name"
_MOVE_TIMEOUT: Final = timedelta(minutes=20)
"""Default of ``master_pod_move_timeout``."""


def wrote(budget: Object) -> bool:
    """Return whether the operator wrote a budget: by default it has no owner, and these labels."""
    labels = selected_labels(budget)
    return labels.get("application") == "spilo" and _CLUSTER in labels


def judge(eviction: PodEviction) -> OperatorAnswer | None:
    """Return what the operator does about an eviction; None: the form of the budget decides.

    Raises:
        Unseen: whether it moves the master is not known.
    """
    labels = selected_labels(eviction.budget)
    if _CRITICAL in labels:
        runs = f"an operation of {labels[_CLUSTER]} runs, such as an upgrade"
        reason = f"{runs}, during which the operator lets no pod go"
        return OperatorAnswer(Way.NOW, reason, "Wait until the Postgres operator has ended it.")
    role = role_budgets.of_budget(eviction.pod, eviction.budget, eviction.cluster)
    if _ROLE not in labels or not eviction.never:
        return None
    node = find(eviction.cluster, NODE, "", eviction.node)
    since = node_phases.cordoned_since(node) if node is not None else None
    age = clock.since(clock.stamp(since), eviction.cluster)
    alone = f"it selects only {_ROLE}={labels[_ROLE]}, which one pod has"
    what = role.words if role is not None else alone
    if age is not None and age >= _MOVE_TIMEOUT:
        since_then = f"since the node was cordoned {clock.duration(age)} ago"
        kept = f"{what}, and the operator has not moved this role {since_then}"
        return OperatorAnswer(Way.NEVER, kept, _switchover(role, eviction))
    ready = _readiness(eviction)
    if ready is None:
        moves = "it moves the master off a cordoned node"
        raise Unseen(f"{moves} unless node_readiness_label keeps it, and that is not known")
    if node is not None and ready and ready.items() <= node.labels.items():
        shown = ", ".join(f"{key}={value}" for key, value in sorted(ready.items()))
        only = f"the operator moves it only off a node without {shown} (node_readiness_label)"
        off = about("label", node, NODE, *(f"{key}-" for key in sorted(ready)))
        remedy = typed("Take that label off the node while it is drained", off)
        return OperatorAnswer(Way.NEVER, f"{what}, and {only}", remedy)
    name = role.owner if role is not None else labels[_CLUSTER]
    moves = f"the Postgres operator moves the master of {name} off the cordoned node"
    return OperatorAnswer(Way.WAITS, moves)


def _readiness(eviction: PodEviction) -> dict[str, str] | None:
    """Return the labels of nodes that are ready for the operator; None: they are not known."""
    found = eviction.cluster.known(_CONFIGURATION)
    if len(found) != 1:
        return None
    return dict(found[0].at("configuration", "kubernetes", "node_readiness_label").texts)


def _switchover(role: PodRole | None, eviction: PodEviction) -> str:
    pod = eviction.pod
    if role is None:
        second = "Ask for a second instance in its postgresql object"
        return f"{second}, and let it become the master (a switch-over)."
    ready = role.next(eviction.cluster) is not None
    where = (argument(pod.name), "-n", pod.namespace, "--", "patronictl", "switchover")
    run = shell("kubectl", "exec", "-it", *where) if ready else ""
    return typed(role_budgets.take_over(role, eviction.cluster), run)
