"""What Rook does about the eviction of a daemon of Ceph.

Sources: rook/rook:pkg/operator/ceph/cluster/mon/drain.go#reconcileMonPDB, :pkg/operator/ceph/
cluster/mon/health.go (it looks at the quorum every 45 s).
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.budgets import unhealthy_pods
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    GOES,
    OperatorAnswer,
    PodEviction,
    Way,
    not_ready,
    owner_of,
    selected_labels,
)
from virt_admit.forecasts.drain.budgets.rook import rook_osds
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union

READS: Final = union(
    rook_osds.READS,
    {
        CEPH_CLUSTER: ("spec.disruptionManagement.managePodBudgets",),
        POD: ("status.conditions.lastTransitionTime",),
    },
)
_ROOK: Final = "ceph.rook.io"


def wrote(budget: Object) -> bool:
    return owner_of(budget, _ROOK) is not None or _is_of_monitors(budget)


def _is_of_monitors(budget: Object) -> bool:
    return (
        budget.name == "rook-ceph-mon-pdb" and selected_labels(budget).get("app") == "rook-ceph-mon"
    )


def follows_pods(budget: Object) -> bool:
    """Return whether Rook raises a budget once its pods are ready: it lowers that of the monitors
    while any is out of the quorum.
    """
    return _is_of_monitors(budget)


def judge(eviction: PodEviction) -> OperatorAnswer | None:
    labels = selected_labels(eviction.budget)
    domain = next((key for key in labels if key.startswith(rook_osds.DOMAIN)), "")
    if domain:
        return rook_osds.another_domain(eviction, domain)
    if labels.get("app") == "rook-ceph-osd":
        return rook_osds.of_node(eviction)
    if eviction.allowed:
        return GOES
    if _is_of_monitors(eviction.budget):
        return _monitor(eviction)
    owner = owner_of(eviction.budget, _ROOK)
    if eviction.never:
        reason = f"{eviction.never}, and Rook keeps it for {owner}"
        return OperatorAnswer(Way.NEVER, reason, f"Add an instance or a standby in {owner}.")
    return not_ready(f"a daemon of {owner}")


def _monitor(eviction: PodEviction) -> OperatorAnswer | None:
    known = eviction.cluster.known(CEPH_CLUSTER, eviction.budget.namespace)
    if any(map(_leaves_budgets_alone, known)):
        return None
    if joins := _joining(eviction):
        reason = f"Rook lets one go once all monitors are in the quorum: {joins}"
        return OperatorAnswer(Way.WAITS, reason, passes=True)
    remedy = "Wait until all monitors are in the quorum, or repair them."
    return OperatorAnswer(Way.NOW, "a Ceph monitor is down", remedy, of_pods=True)


def _leaves_budgets_alone(ceph: Object) -> bool:
    return ceph.at("spec", "disruptionManagement", "managePodBudgets").boolean is False


def _joining(eviction: PodEviction) -> str:
    """Return which monitor has just become ready, where all are; empty: none, or not all are."""
    cluster = eviction.cluster
    if unlisted(cluster, POD) or clock.exact(cluster) is None:
        return ""
    monitors = list(eviction.selected)
    if not all(each.is_true("Ready") and not each.deleted for each in monitors):
        return ""
    times = {each.condition("Ready")["lastTransitionTime"].text or "": each for each in monitors}
    age = clock.since(max(times, default=""), cluster)
    if age is None or age > unhealthy_pods.USUAL:
        return ""
    return f"pod {times[max(times)].name} has been ready for only {clock.duration(age)}"
