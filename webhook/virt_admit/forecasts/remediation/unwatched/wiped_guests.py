"""VMs that are nodes of a tenant cluster, and whose new start has wiped the node.

A disk of the kind containerDisk or ephemeral begins again with each VMI. With it goes what the node
had joined its cluster with, and the token of its bootstrap data ends once it has joined: the guest
runs, and its node stays away. A Machine that is replaced gets new bootstrap data. Sources:
kubernetes-sigs/cluster-api-provider-kubevirt#70; kubernetes-sigs/cluster-api:
bootstrap/kubeadm/internal/controllers/kubeadmconfig_controller.go#refreshBootstrapTokenIfNeeded.

A Machine says so only if Cluster API has read the Node: that it cannot reach the tenant's API
server (NodeInspectionFailed, ConnectionDown) says nothing of one node, and a node without room on
its disk has joined. Source:
kubernetes-sigs/cluster-api:internal/controllers/machine/machine_controller_noderef.go#reconcileNode
#summarizeNodeV1beta1Conditions, machine_controller_status.go#summarizeNodeConditions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation.unwatched import guest_machines
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_CLUSTER, CAPI_MACHINE, CAPI_MHC, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import grouped

READS: Final[Reads] = union(
    clock.READS,
    guest_machines.READS,
    {CAPI_CLUSTER: CONDITIONS, VMI: ("metadata.creationTimestamp", "spec.volumes", "status.phase")},
)
_WIPED: Final = ("containerDisk", "ephemeral")
_KEPT: Final = ("dataVolume", "persistentVolumeClaim", "hostDisk")
_BOOTS: Final = timedelta(minutes=10)
"""A guest has started, and its kubelet reports, by then."""
_ENDS: Final = timedelta(minutes=5)
"""The guest before it has ended this long before its new start."""
_GONE: Final = ("NodeNotFound", "NodeDeleted")
_NOT_READY: Final = re.compile(
    r"Node condition Ready is |Node\.(?:Ready|AllConditions): (?!Condition not yet reported)"
)
"""What the condition says of a node whose kubelet is away, in both versions of the API."""
_CONTROL_PLANE: Final = ("ControlPlaneReady", "ControlPlaneAvailable")


class WipedGuest(NamedTuple):
    """A node of a tenant cluster that is away since its VM was started again."""

    volume: Field
    reason: str
    remedy: str
    brief: str
    """The reason in fewer words."""


def of_vmi(vmi: Object, cluster: Cluster) -> WipedGuest | None:
    """Return that a new start of a VM has wiped the node of a tenant cluster; None: it has not,
    something else may replace its Machine, or that is not known.
    """
    volumes = list(vmi.at("spec", "volumes").items())
    wiped = [(each, kind) for each in volumes for kind in _WIPED if each[kind].present]
    kept = any(each[kind].present for each in volumes for kind in _KEPT)
    machine = guest_machines.machine(vmi, cluster) if wiped and not kept else None
    if machine is None or vmi.deleted or not _is_away_since(vmi, machine, cluster):
        return None
    if guest_machines.may_be_watched(machine, cluster) or unlisted(cluster, CAPI_MHC):
        return None
    if _have_one_cause(machine, cluster):
        return None
    (volume, kind), named = wiped[0], f"Machine {machine.full_name}"
    disk = f"volume {volume['name'].text} ({kind})"
    reason = (
        f"the node of {named} is away since this VMI was made at {vmi.created}: {disk} began "
        "again as in its image, without what the node had joined its cluster with, and "
        "the bootstrap data are those of the first start"
    )
    brief = f"the node of {named} is away since {vmi.created}: a new VMI has wiped {disk}"
    replaced = "which its MachineSet replaces, as no MachineHealthCheck does"
    remedy = typed(
        f"delete Machine {machine.name}, {replaced}",
        about("delete", machine, CAPI_MACHINE),
        "and give its template a root disk that stays (a DataVolume)",
    )
    return WipedGuest(volume, reason, remedy, brief)


def _is_away_since(vmi: Object, machine: Object, cluster: Cluster) -> bool:
    """Return whether a Machine had its node before the VMI was made, and is without it since then,
    and for longer than a boot takes.
    """
    healthy, joined = machine.condition("NodeHealthy"), machine.condition("InfrastructureReady")
    owned = machine.controller is not None and machine.controller["kind"].text == "MachineSet"
    age = clock.age(vmi, cluster)
    made, first, away = (
        clock.instant(each)
        for each in (
            vmi.created,
            joined["lastTransitionTime"].text,
            healthy["lastTransitionTime"].text,
        )
    )
    if made is None or first is None or away is None or age is None:
        return False
    has_joined = machine.at("status", "nodeRef", "name").present and first < made
    since_then = made - _ENDS <= away < made + _BOOTS
    is_away = _has_no_node(healthy) and since_then
    return owned and not machine.deleted and has_joined and is_away and age > _BOOTS


def _has_no_node(healthy: Field) -> bool:
    """Return whether Cluster API has seen that a node does not report, or is not there."""
    said = _NOT_READY.search(healthy["message"].text or "")
    unhealthy = healthy["status"].text in ("False", "Unknown")
    return unhealthy and (healthy["reason"].text in _GONE or said is not None)


def _have_one_cause(machine: Object, cluster: Cluster) -> bool:
    """Return whether all nodes of a tenant cluster are away, or its control plane is or may be:
    other Machines do not join either.
    """
    name = machine.at("spec", "clusterName").text or ""
    try:
        owner = cluster.get(CAPI_CLUSTER, machine.namespace, name)
    except Unseen:
        return True
    if owner is not None:
        states = (owner.condition(each)["status"].text for each in _CONTROL_PLANE)
        if "False" in states:
            return True
    every = entry(cluster, _of_clusters, (machine.namespace, name)) or ()
    return len(every) > 1 and not any(each.is_true("NodeHealthy") for each in every)


def _of_clusters(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    return grouped(
        (each for each in cluster.known(CAPI_MACHINE) if not each.deleted),
        lambda each: (each.namespace, each.at("spec", "clusterName").text or ""),
    )
