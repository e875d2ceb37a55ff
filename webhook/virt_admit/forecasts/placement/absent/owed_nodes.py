"""The next node of a cluster that does not come although a controller of Machines owes it, or its
kubelet asks for a certificate.

Machines are counted by their owner: the status of a controller that is paused is old
(kubernetes-sigs/cluster-api#4473). Those that are being deleted count, as a MachineSet of Cluster
API waits for their end (:core/reconcilers/machineset/machineset_controller.go
#getAndAdoptMachinesForMachineSet). A MachineSet of OpenShift that Cluster API manages is left out
(openshift/machine-api-operator:pkg/controller/machineset/controller.go#Reconcile).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.absent import unready_nodes
from virt_admit.forecasts.placement.components import stalled_machines
from virt_admit.model import certificate_requests
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, events, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    CAPI_MHC,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_SET,
    MHC,
    NODE,
    Kind,
)
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.lookups import find
from virt_admit.model.messages import command_of, cut_middle, shorten
from virt_admit.model.node_updates.operators import paused_clusters
from virt_admit.model.node_updates.operators.paused_clusters import PausedCluster
from virt_admit.model.problems import Problem
from virt_admit.model.remediation import (
    bare_metal,
    check_scope,
    health_checks,
    machine_drain,
    machine_starts,
    machines,
)
from virt_admit.model.remediation.machine_starts import OverdueMachine

_SCALED: Final = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
_SCALER: Final = "autoscaling.openshift.io/machineautoscaler"
"""The annotations of a MachineSet that the cluster-autoscaler scales; the second one names the
MachineAutoscaler that wrote the first (openshift/cluster-autoscaler-operator:pkg/controller/
machineautoscaler). The minimum holds for the deletion of failed Machines too
(kubernetes/autoscaler:cluster-autoscaler/cloudprovider/clusterapi/
clusterapi_nodegroup.go#DeleteNodes, issue 9961).
"""
READS: Final[Reads] = union(
    certificate_requests.READS,
    unready_nodes.READS,
    paused_clusters.READS,
    stalled_machines.READS,
    machine_starts.READS,
    machine_starts.SHORT_READS,
    bare_metal.RECORD_READS,
    dict.fromkeys((MHC, CAPI_MHC), ("spec", "metadata.annotations")),
    {
        MACHINE: ("metadata.labels",),
        MACHINE_SET: (
            "status.authoritativeAPI",
            *(f"metadata.annotations.{key}" for key in (_SCALED, _SCALER)),
        ),
        NODE: ("metadata.labels",),
    },
)


@cached
def first(cluster: Cluster) -> Problem | None:
    """Return why the next node does not come, and the first step to it; None: none is owed, or
    that is not known."""
    return next(_owed(cluster), None)


def _owed(cluster: Cluster) -> Iterator[Problem]:
    for owner in _owners(cluster):
        short = paused_clusters.shortage(owner, cluster)
        paused = paused_clusters.of_member(owner, cluster) if short else None
        if paused is not None and paused_clusters.is_long(paused):
            mine = "" if paused.obj is owner else f" of {owner.kind} {owner.full_name}"
            yield Problem(f"{paused.title}: {short}{mine}", _unpause(paused))
        elif short and (said := _said(owner, cluster)):
            kind = kinds.of(owner) or CAPI_MACHINE_SET
            reason = f"{owner.kind} {owner.full_name} makes none: {short}: {said}"
            yield Problem(reason, typed("repair what it reports", about("describe", owner, kind)))
    if joining := certificate_requests.joining(cluster):
        yield Problem(joining.reason, typed(joining.advice, joining.command))
    yield from _deleted_early(cluster)
    if found := next_machine(cluster):
        yield found
    refused = machine_starts.without_hosts(cluster)
    for late in (*machine_starts.overdue_of_openshift(cluster), *refused):
        if late.certain and not _is_control_plane(late.machine):
            yield Problem(late.why, provided(late, MACHINE, cluster))


def _deleted_early(cluster: Cluster) -> Iterator[Problem]:
    """Yield that a health check deletes the new Machines before they can become nodes, which has
    been seen."""
    for kind in (MHC, CAPI_MHC):
        for check in sorted(cluster.known(kind), key=lambda each: each.full_name):
            try:
                short = machine_starts.short_start(check, cluster)
            except Unseen:
                continue
            own = check_scope.selected(check, cluster).objects
            waits = any(not machines.node_name(each) and not each.deleted for each in own)
            if short is not None and short.seen and waits:
                field, enough = health_checks.view(check).startup.path, short.enough
                reason = f"{kind.kind} {check.full_name} deletes new Machines in a loop"
                way = (
                    f"set {field} of {kind.kind} {check.name} to {format_duration(enough)} or more"
                )
                yield Problem(f"{reason}: {short.words}", typed(way, about("edit", check, kind)))


def _unpause(paused: PausedCluster) -> str:
    """Return what ends a pause, with a command and the name of what is paused."""
    remedy, whole = paused.remedy, CAPI_CLUSTER.kind
    if paused.obj.kind == whole:
        remedy = remedy.replace("unpause it", f"unpause {whole} {paused.obj.name}", 1)
    if command_of(remedy):
        return remedy
    return typed(remedy, about("get", paused.obj, CAPI_CLUSTER, "-o", "yaml"))


def first_step(cluster: Cluster) -> str:
    """Return what is to be repaired before a node is added, as a sentence without its stop; empty:
    nothing is known. The room of nodes that have run VMs is counted elsewhere."""
    for name, unready in unready_nodes.known(cluster).items():
        node = find(cluster, NODE, "", name)
        if unready.for_vms and node is not None and SCHEDULABLE not in node.labels:
            return f"First repair node {name}, which is not Ready"
    owed = first(cluster)
    return f"First see why the next node is missing ({shorten(owed.reason, 120)})" if owed else ""


def _owners(cluster: Cluster) -> Iterator[Object]:
    """Yield what makes Machines that are to be nodes of this cluster."""
    here = cluster.cached(stalled_machines.clusters)
    for kind in (CAPI_MACHINE_SET, MACHINE_DEPLOYMENT):
        for owner in sorted(cluster.known(kind), key=lambda each: each.full_name):
            if not owner.deleted and stalled_machines.cluster_of(owner) in here:
                yield owner
    for owner in sorted(cluster.known(MACHINE_SET), key=lambda each: each.full_name):
        if not owner.deleted and owner.at("status", "authoritativeAPI").text in (None, _OWN):
            yield owner


_OWN: Final = "MachineAPI"


def _said(owner: Object, cluster: Cluster) -> str:
    """Return why a MachineSet cannot make a Machine; empty: it does not say so, as while it makes
    one."""
    made = machine_drain.condition(owner, "MachinesCreated")
    failed = made["message"].words if made["status"].text == "False" else ""
    hour = clock.ago(_RECENT, cluster)
    return cut_middle(failed or events.last_warning(owner, "FailedCreate", hour, cluster), _LONGEST)


_RECENT: Final = timedelta(hours=1)
_LONGEST: Final = 160


def next_machine(cluster: Cluster) -> Problem | None:
    """Return why a Machine of Cluster API does not become a node of this cluster; None: none is
    known."""
    for stalled in stalled_machines.here(cluster):
        if not _is_control_plane(stalled.machine):
            return Problem(stalled.why, stalled.remedy)
    for late in stalled_machines.waiting(cluster):
        if not _is_control_plane(late.machine):
            return Problem(late.why, provided(late, CAPI_MACHINE, cluster))
    return None


def provided(late: OverdueMachine, kind: Kind, cluster: Cluster) -> str:
    """Return what lets a Machine become a node, with a command."""
    see, short = about("describe", late.machine, kind), late.shortage
    if short is None or not short.lasts:
        return typed(_PROVIDE, see)
    if short.record is not None:
        return bare_metal.record_remedy(short.record, cluster)
    owner = find(
        cluster, MACHINE_SET, late.machine.namespace, late.machine.owned_by(MACHINE_SET.kind)
    )
    if owner is None or _SCALED not in owner.annotations:
        return typed("register another BareMetalHost", see)
    scaler = owner.annotations.get(_SCALER, "").rpartition("/")[2]
    keeps = "which keeps the Machine until the host is there"
    fewest = f"or raise minReplicas of MachineAutoscaler {scaler}, {keeps}" if scaler else ""
    return typed(
        "register another BareMetalHost, and let it become available before the "
        "cluster-autoscaler scales up again (newer releases of it delete a Machine with an "
        "errorMessage at once)",
        see,
        fewest,
    )


def _is_control_plane(machine: Object) -> bool:
    labels = machine.labels
    return machines.CAPI_CONTROL_PLANE_LABEL in labels or labels.get(_ROLE) == machines.MASTER


_PROVIDE: Final = "provide what that Machine waits for, unless it goes on"
_ROLE: Final = machines.ROLE_LABELS[0]
