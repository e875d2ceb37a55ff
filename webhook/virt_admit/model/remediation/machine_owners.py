"""The controllers of Machines, and which of them replace a Machine that a health check found
unhealthy.

A MachineHealthCheck of machine.openshift.io deletes a Machine that has a controller of any kind.
One of Cluster API only marks the Machine, and its controller deletes it, each in its own way. With
a remediation template neither matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, gather
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import grouped
from virt_admit.model.remediation.health_checks import HealthCheck

KUBEADM: Final = "KubeadmControlPlane"
"""Deletes one Machine at a time, and never the only one
(kubernetes-sigs/cluster-api: kubeadmcontrolplane/remediation.go#reconcileUnhealthyMachines)."""

TALOS: Final = "TalosControlPlane"
"""Does not read the mark, in all releases up to 0.5.12
(siderolabs/cluster-api-control-plane-provider-talos: controllers/taloscontrolplane_controller.go).
"""

BY_PROVIDER: Final = "Cluster API leaves that to its infrastructure provider"
"""Of a MachinePool, whose controller does not read the mark either
(kubernetes-sigs/cluster-api:core/reconcilers/machinepool/machinepool_controller_phases.go
#reconcileMachines)."""

UNOWNED: Final = "no controller owns it, so it is never deleted"


def title(machine: Object) -> str:
    """Return kind and name of the controller of a Machine; empty if it has none."""
    owner = machine.controller
    return "" if owner is None else f"{owner['kind'].text or '?'} {owner['name'].text or '?'}"


def owned(owner: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the Machines of a controller, the oldest first.

    Raises:
        Unseen: more may exist in its namespace.
    """
    namespace = owner.namespace
    unread = entry(cluster, _unread, namespace)
    if unread is None:  # it has no known Machines
        unread = _more(namespace, cluster)
    if unread:
        raise Unseen(unread)
    return entry(cluster, _by_owner, (namespace, f"{owner.kind} {owner.name}")) or ()


def _by_owner(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the known Machines by namespace and controller: once for all controllers."""
    machines = sorted(cluster.known(CAPI_MACHINE), key=lambda each: (each.created, each.name))
    return grouped(machines, lambda each: (each.namespace, title(each)))


def _unread(cluster: Cluster) -> Mapping[str, str]:
    """Return for each namespace with Machines what could not be read; empty: all are known."""
    namespaces = {each.namespace for each in cluster.known(CAPI_MACHINE)}
    return {each: _more(each, cluster) for each in namespaces}


def _more(namespace: str, cluster: Cluster) -> str:
    return gather(cluster.list(CAPI_MACHINE, namespace))[1]


def decide(check: HealthCheck) -> bool:
    """Return whether the controllers of the Machines decide what becomes of unhealthy ones."""
    return check.kind is not kinds.NHC and not check.template.present and not check.external


def kept(check: HealthCheck, selection: Selection) -> Mapping[str, tuple[Object, ...]]:
    """Return the selected Machines that are never deleted when they are unhealthy,
    by the reason.
    """
    found: dict[str, list[Object]] = {}
    if not decide(check):
        return {}
    # of the whole namespace, selected or not
    numbers = Counter(map(title, selection.index.objects))
    for machine in selection.objects:
        reason = _kept(check, machine, not selection.unseen and numbers[title(machine)] == 1)
        if reason:
            found.setdefault(reason, []).append(machine)
    return {reason: tuple(some) for reason, some in found.items()}


def _kept(check: HealthCheck, machine: Object, is_only: bool) -> str:
    owner = machine.controller
    if owner is None:
        return UNOWNED
    if check.kind is not kinds.CAPI_MHC:
        return ""
    if owner["kind"].text == TALOS:
        return f"{title(machine)} replaces no unhealthy Machine (releases up to 0.5.12)"
    if owner["kind"].text == KUBEADM and is_only:
        return f"{title(machine)} never deletes its only Machine"
    return ""


def one_by_one(check: HealthCheck, selection: Selection) -> int:
    """Return how many of the selected Machines have a controller that deletes them one at a
    time.
    """
    if check.kind is not kinds.CAPI_MHC or not decide(check):
        return 0
    return sum(title(machine).startswith(f"{KUBEADM} ") for machine in selection.objects)
