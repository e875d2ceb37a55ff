"""PodDisruptionBudgets of Longhorn: they keep the last copy of a volume reachable while a node is drained.

Sources: longhorn/longhorn-manager:controller/instance_manager_controller.go#canDeleteInstanceManagerPDB,
:datastore/longhorn.go#ListVolumePDBProtectedHealthyReplicasRO, :controller/kubernetes_pdb_controller.go#reconcile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.budgets import longhorn_instances, operator_eviction
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    GOES,
    OperatorAnswer,
    PodEviction,
    Way,
    is_schedulable,
    not_ready,
    selected_labels,
)
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import LONGHORN_REPLICA, LONGHORN_SETTING, LONGHORN_VOLUME, PDB
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.messages import count, names

READS: Final = union(
    operator_eviction.READS,
    longhorn_instances.READS,
    {
        LONGHORN_SETTING: ("value",),
        LONGHORN_VOLUME: ("spec.numberOfReplicas", "status.currentNodeID"),
        LONGHORN_REPLICA: (
            "spec.volumeName",
            "spec.nodeID",
            "spec.desireState",
            "spec.healthyAt",
            "spec.failedAt",
            "status.currentState",
        ),
    },
)

_COMPONENT: Final = "longhorn.io/component"
_LONGHORN_NODE: Final = "longhorn.io/node"
_BY_DEFAULT: Final = "block-if-contains-last-replica"


def is_instance_manager(budget: Object) -> bool:
    return selected_labels(budget).get(_COMPONENT) == "instance-manager"


def instance_manager(eviction: PodEviction) -> OperatorAnswer:
    """Longhorn removes the budget on a cordoned node without volumes, if its policy allows that."""
    return longhorn_instances.obstacle(eviction) or _by_policy(eviction)


def _by_policy(eviction: PodEviction) -> OperatorAnswer:
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    setting = cluster.get(LONGHORN_SETTING, namespace, "node-drain-policy")
    policy = (setting["value"].text if setting is not None else None) or _BY_DEFAULT
    waits = OperatorAnswer(
        Way.WAITS, f"Longhorn removes it once the VMs and pods with its volumes have left node {node}"
    )
    if policy == "always-allow":
        return waits
    for _ in cluster.list(LONGHORN_REPLICA, namespace):  # raises Unseen unless all are known
        pass
    here = cluster.cached(_replicas_by_node).get((namespace, node), ())
    if policy == "block-for-eviction":
        kept = list(here)
    else:
        stopped_may_go = policy == "allow-if-replica-is-stopped"
        elsewhere = _protected_nodes(namespace, cluster) - {node}
        kept = [
            replica
            for replica in here
            if not (stopped_may_go and _is_stopped(replica)) and _is_last(replica, elsewhere, cluster)
        ]
    if not kept:
        return waits
    volumes = sorted({replica.at("spec", "volumeName").text or replica.name for replica in kept})
    if policy.startswith("block-for-eviction"):
        raise Unseen(f"it first moves {count(len(kept), 'replica')} to other nodes, which need disk space")
    found = [cluster.get(LONGHORN_VOLUME, namespace, name) for name in volumes]
    if policy == "allow-if-replica-is-stopped" and all(
        volume is not None and volume.at("status", "currentNodeID").text == node for volume in found
    ):
        raise Unseen(f"the replicas of {_volumes(volumes)} may stop when the VMs have left")
    reason = f"the only healthy copy of {_volumes(volumes)} is on node {node}"
    rebuilding = all(
        volume is not None and (volume.at("spec", "numberOfReplicas").integer or 0) > 1 for volume in found
    )
    if rebuilding:
        detached = all(volume is not None and volume.at("status", "state").text == "detached" for volume in found)
        first = (
            "Start the VM that uses it, because Longhorn rebuilds only attached volumes, and wait"
            if detached
            else "Wait"
        )
        return OperatorAnswer(
            Way.NOW, reason, f"{first} until Longhorn has rebuilt a copy on another node that is not cordoned."
        )
    return OperatorAnswer(Way.NEVER, reason, "Add a replica: set numberOfReplicas: 2 in the Longhorn volume.")


def _volumes(volumes: list[str]) -> str:
    return f"Longhorn volume{'s' if len(volumes) > 1 else ''} {names(volumes)}"


def _is_stopped(replica: Object) -> bool:
    return replica.at("spec", "desireState").text == replica.at("status", "currentState").text == "stopped"


def _is_healthy(replica: Object) -> bool:
    return bool(replica.at("spec", "healthyAt").text) and not replica.at("spec", "failedAt").text


def _is_last(replica: Object, nodes: set[str], cluster: Cluster) -> bool:
    """Return whether none of these nodes has a healthy copy of the volume. A replica never used holds no data."""
    spec = replica["spec"]
    if not spec["healthyAt"].text and not spec["failedAt"].text:
        return False
    copies = cluster.cached(_healthy_copies).get((replica.namespace, spec["volumeName"].text or ""), set())
    return copies.isdisjoint(nodes)


def _replicas_by_node(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the replicas by namespace and node."""
    found: dict[tuple[str, str], list[Object]] = {}
    for replica in cluster.known(LONGHORN_REPLICA):
        found.setdefault((replica.namespace, replica.at("spec", "nodeID").text or ""), []).append(replica)
    return found


def _healthy_copies(cluster: Cluster) -> Mapping[tuple[str, str], set[str]]:
    """Return, by namespace and volume, the nodes with a healthy replica."""
    found: dict[tuple[str, str], set[str]] = {}
    for replica in cluster.known(LONGHORN_REPLICA):
        if _is_healthy(replica):
            spec = replica["spec"]
            nodes = found.setdefault((replica.namespace, spec["volumeName"].text or ""), set())
            nodes.add(spec["nodeID"].text or "")
    return found


def _protected_nodes(namespace: str, cluster: Cluster) -> set[str]:
    """Return the schedulable nodes whose instance manager has a budget."""
    budgets = (selected_labels(budget) for budget in cluster.list(PDB, namespace) if is_instance_manager(budget))
    marked = {labels[_LONGHORN_NODE] for labels in budgets if _LONGHORN_NODE in labels}
    return {node for node in marked if is_schedulable(node, cluster)}


def is_csi(budget: Object) -> bool:
    return budget.name in ("csi-attacher", "csi-provisioner") and selected_labels(budget).get("app") == budget.name


def csi(eviction: PodEviction) -> OperatorAnswer:
    if eviction.allowed:
        return GOES
    if eviction.never:
        reason = f"{eviction.never}, and Longhorn keeps it while a volume is attached"
        return OperatorAnswer(
            Way.NEVER, reason, f"Run three replicas of {eviction.budget.name}, as Longhorn does by default."
        )
    return not_ready(f"a pod of {eviction.budget.name}")
