"""Hooks that hold the deletion of a Machine whose Node does not exist any more.

RKE2's provider removes its hook once the Node of the Machine carries an annotation that says that
etcd removed the member. It looks for that Node by its name and waits without end where the Node was
deleted first, although RKE2 takes the member of a deleted Node out of etcd. Sources:
rancher/cluster-api-provider-rke2:pkg/rke2/workload_cluster_etcd.go#isMemberRemovedForNode,
:controlplane/internal/controllers/lifecycle_hook.go#reconcilePreTerminateHook;
k3s-io/k3s:pkg/etcd/member_controller.go; kubernetes-sigs/cluster-api:
core/reconcilers/machine/machine_controller_status.go#setNodeHealthyAndReadyConditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    KUBEADM,
    RKE2_CONTROL_PLANE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.node_updates.operators import paused_clusters
from virt_admit.model.node_updates.operators.paused_clusters import PausedCluster
from virt_admit.model.remediation import etcd_guard, machine_drain

_PREFIX: Final = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
RKE2: Final = "rke2-cleanup"
_OWNERS: Final = {RKE2: RKE2_CONTROL_PLANE, "kcp-cleanup": KUBEADM}
"""Which controller of the Machine sets and removes a hook that names no owner."""
REMOVED: Final = "etcd.rke2.cattle.io/removed-node-name"
_LEGACY: Final = "controlplane.cluster.x-k8s.io/legacy"

READS: Final[Reads] = union(
    machine_drain.READS,
    paused_clusters.READS,
    {
        RKE2_CONTROL_PLANE: (),
        CAPI_MACHINE: ("metadata.ownerReferences", "metadata.deletionTimestamp"),
    },
)

PATIENCE: Final = timedelta(hours=1)
"""A controller that moves data needs minutes."""
_OF_ETCD: Final = timedelta(hours=3)
"""A replacement is installed and joins etcd first, on bare metal too, and Machines that were
deleted together take turns. The test of its operator gives a roll-out of three virtual machines an
hour.
"""
_WITHOUT_NODE: Final = timedelta(minutes=15)
"""RKE2's provider looks again after seconds, and etcd removes a member at once."""


class HookWait(NamedTuple):
    """Why a hook stays."""

    why: str
    advice: str
    command: str

    @property
    def remedy(self) -> str:
        """The advice with its command."""
        return typed(self.advice, self.command)


def hooks(machine: Object) -> Sequence[str]:
    """Return the hooks that the deletion of a Machine waits for, as ``NAME of OWNER``."""
    found = machine_drain.holding_hooks(machine) or machine_drain.terminating_hooks(machine)
    return tuple(_owned(each, machine) for each in found)


def _owned(hook: str, machine: Object) -> str:
    """Return a hook with the owner of the Machine where the hook itself does not name its own."""
    kind = _OWNERS.get(hook)
    owner = machine.owned_by(kind.kind) if kind is not None else ""
    return f"{hook} of {kind.kind} {owner}" if kind is not None and owner else hook


def patience(machine: Object, cluster: Cluster) -> timedelta:
    """Return for how long the wait for hooks of a Machine is nothing unusual."""
    if of_lost_member(machine, cluster) is not None:
        return _WITHOUT_NODE
    return _OF_ETCD if etcd_guard.is_held(machine) else PATIENCE


def pause(machine: Object, cluster: Cluster) -> PausedCluster | None:
    """Return which pause of its Cluster or its control plane keeps a hook of a Machine; None: none
    is known.
    """
    if kinds.of(machine) is not CAPI_MACHINE:
        return None
    above = [(CAPI_CLUSTER, machine.at("spec", "clusterName").text)]
    above += [(kind, machine.owned_by(kind.kind)) for kind in _OWNERS.values()]
    for kind, name in above:
        found = find(cluster, kind, machine.namespace, name)
        if found is not None and (paused := paused_clusters.of(found, cluster)) is not None:
            return paused
    return None


def is_node_deleted(machine: Object) -> bool:
    """Return whether Cluster API says that the Node of a Machine was deleted, in either version."""
    healthy = machine_drain.condition(machine, "NodeHealthy")
    return healthy["status"].text == "False" and healthy["reason"].text in _NO_NODE


_NO_NODE: Final = ("NodeDeleted", "NodeNotFound")


def of_lost_member(machine: Object, cluster: Cluster) -> HookWait | None:
    """Return that RKE2's provider looks for the member of etcd of a Machine on its deleted Node;
    None: it does not, or waits for something else first.

    The only Machine of a control plane, and one that an early release of the provider made, loses
    the hook without that.
    """
    if kinds.of(machine) is not CAPI_MACHINE or not machine.deleted:
        return None
    if unlisted(cluster, CAPI_CLUSTER) or pause(machine, cluster) is not None:
        return None  # its provider may do nothing at all
    own = [key for key in machine.annotations if key.startswith(_PREFIX)]
    name = machine.at("status", "nodeRef", "name").text
    waits = machine_drain.terminating_hooks(machine) and own == [f"{_PREFIX}/{RKE2}"]
    title = machine.owned_by(RKE2_CONTROL_PLANE.kind)
    owner = find(cluster, RKE2_CONTROL_PLANE, machine.namespace, title)
    if not waits or not name or owner is None or not is_node_deleted(machine):
        return None
    others = [
        each
        for each in cluster.known(CAPI_MACHINE, machine.namespace)
        if each.owned_by(RKE2_CONTROL_PLANE.kind) == title and each.name != machine.name
    ]
    first = (each.metadata["deletionTimestamp"].text or "" for each in others if each.deleted)
    began = machine.metadata["deletionTimestamp"].text or ""
    if unlisted(cluster, CAPI_MACHINE):
        return None
    if not others or any(each < began for each in first) or _LEGACY in owner.annotations:
        return None
    why = (
        f"{owner.kind} {owner.name} looks for annotation {REMOVED} on Node {name}, which was "
        "deleted"
    )
    healthy = machine_drain.condition(owner, "EtcdClusterHealthy")["status"].text
    if healthy != "True":
        see = about("describe", owner, RKE2_CONTROL_PLANE)
        return HookWait(why, f"repair etcd before you remove the hook ({_NOT_HEALTHY})", see)
    end = about("annotate", machine, CAPI_MACHINE, f"{own[0]}-")
    return HookWait(why, "if etcd, which is healthy, lists no member of it, remove the hook", end)


_NOT_HEALTHY: Final = "EtcdClusterHealthy is not True"
