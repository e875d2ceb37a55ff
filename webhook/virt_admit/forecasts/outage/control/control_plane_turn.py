"""Whether a NodeHealthCheck remediates a lost control-plane node: one at a time, and on OpenShift
as etcd's budget says.

Source: medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go
#isControlPlaneRemediationAllowed; medik8s/common:pkg/etcd/etcd.go. Compared with it:
``tests/upstream/medik8s.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.remediation import exclusions
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation.etcd_guard import ETCD


def refusal(
    node: str, members: Mapping[str, Object], unhealthy: Collection[str], loss: Loss
) -> tuple[str, tuple[str, ...]]:
    """Return why a lost control-plane node is not remediated, and what is not known of that.

    Empty: it is.

    A node that was unhealthy before has a remediation already, which stays because that node does
    not return. Of several that are lost at once the check takes any one first.

    Args:
        node: the node.
        members: the control-plane nodes that the check selects, by name.
        unhealthy: those that it selects and that were unhealthy before.
        loss: the loss.
    """
    others = sorted(
        name
        for name, each in members.items()
        if name != node and not exclusions.is_excluded(each, loss.cluster)
    )
    before = [name for name in others if name in unhealthy]
    if before and node not in unhealthy:
        return (
            f"one control-plane node is remediated at a time, and {before[0]} does not return",
            (),
        )
    rivals = before or ([] if node in unhealthy else [name for name in others if name in loss.lost])
    refuses, unseen = loss.cluster.cached(_etcd)
    turn = (
        (f"whether {node} or {rivals[0]} is remediated: only one control-plane node is at a time",)
        if rivals
        else ()
    )
    return refuses, (*unseen, *turn)


def _etcd(cluster: Cluster) -> tuple[str, tuple[str, ...]]:
    """Return why NodeHealthCheck may not disrupt etcd on OpenShift,
    and what could not be read of that.

    It demands exactly one budget there. That of a lost node allows nothing more, but its own guard
    pod is not ready.
    """
    versions_known, unread = gather(cluster.list(kinds.CLUSTER_VERSION))
    if not versions_known:
        return "", (unread,) if unread else ()
    found, unseen = gather(cluster.list(kinds.PDB, ETCD))
    if len(found) > 1 or (not unseen and not found):
        return (
            f"namespace {ETCD} has {len(found) or 'no'} PodDisruptionBudgets, and one is required",
            (),
        )
    return "", (unseen,) if unseen else ()
