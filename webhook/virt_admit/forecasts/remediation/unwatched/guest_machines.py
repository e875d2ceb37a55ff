"""VMs that are nodes of a tenant cluster, whose own MachineHealthCheck replaces them.

Cluster API of the management cluster sees the tenant's node fall silent with its host and deletes
the Machine. A drain waits for no pod that is being deleted on such a node, and the provider does
not wait until the VM is gone. The MachineSet then makes another Machine with another VM. Sources:
kubernetes-sigs/cluster-api: core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go
#reconcile, core/reconcilers/machineset/machineset_controller.go#reconcileUnhealthyMachines
#syncReplicas; kubernetes-sigs/cluster-api-provider-kubevirt:
controllers/kubevirtmachine_controller.go#reconcileDelete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import inactive_reasons, remediation_steps, timeline
from virt_admit.forecasts.remediation.remediation_steps import Budget
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.lookups import grouped
from virt_admit.model.remediation import check_scope, machine_owners
from virt_admit.model.remediation.check_scope import WatchedNodes

READS: Final[Reads] = {
    kinds.VMI: ("metadata.labels", "status.nodeName"),
    kinds.CAPI_MACHINE: (),
    kinds.CAPI_MHC: (),
    kinds.CAPI_CLUSTER: ("spec.paused",),
}
_KIND: Final = "KubevirtMachine"


class _Acting(NamedTuple):
    """A health check that may act on its Machines."""

    title: str
    machines: frozenset[str]
    kept: frozenset[str]
    """Those that are never deleted."""
    budget: Budget
    down: int
    """How many are unhealthy now."""
    unread: str
    """What decides it and could not be read; empty: all was."""


def replaced_by(vmi: Object, cluster: Cluster) -> str:
    """Return the MachineHealthCheck that replaces a VM once its host is lost; empty: none does.

    Raises:
        Unseen: one may, and what decides it could not be read.
    """
    own = machine(vmi, cluster)
    if own is None:
        return ""
    host, more = vmi.at("status", "nodeName").text or "", vmis.unread(cluster)
    for check in entry(cluster, _checks, own.full_name) or ():
        if unread := check.unread or more:
            raise Unseen(unread)
        lost = check.machines & (entry(cluster, _of_hosts, host) or frozenset())
        if not check.kept & lost and not check.budget.refuses(len(lost) + check.down):
            return check.title
    return ""


def machine(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the Machine of Cluster API of a VM; None: it is not the node of a tenant cluster."""
    name, namespace = (
        vmi.labels.get(f"{vms.KUBEVIRT_MACHINE}{part}", "") for part in ("name", "namespace")
    )
    found = entry(cluster, _machines, (namespace, name)) or () if name else ()
    return found[0] if len(found) == 1 else None


def may_be_watched(own: Object, cluster: Cluster) -> bool:
    """Return whether a MachineHealthCheck watches a Machine, or may: also one that does not act."""
    every = check_scope.watches(cluster, kinds.CAPI_MHC)
    if every.unseen or any(watch.selection.unseen for watch in every.of(own.namespace)):
        return True
    return bool(entry(cluster, _watched, own.full_name))


def _watched(cluster: Cluster) -> Mapping[str, bool]:
    """Return the Machines that a MachineHealthCheck watches, whether it acts or not."""
    every = check_scope.watches(cluster, kinds.CAPI_MHC).by_namespace.values()
    watches = chain.from_iterable(every)
    return {each.full_name: True for watch in watches for each in watch.selection.objects}


def _machines(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    return grouped(
        (
            each
            for each in cluster.known(kinds.CAPI_MACHINE)
            if each.at("spec", "infrastructureRef", "kind").text == _KIND and not each.deleted
        ),
        lambda each: (each.namespace, each.at("spec", "infrastructureRef", "name").text or ""),
    )


def _of_hosts(cluster: Cluster) -> Mapping[str, frozenset[str]]:
    """Return the Machines whose VMs are on a host."""
    found: dict[str, set[str]] = {}
    for host, guests in cluster.cached(vmis.by_node).items():
        machines = (machine(vmi, cluster) for vmi in guests)
        found[host] = {each.full_name for each in machines if each is not None}
    return {host: frozenset(machines) for host, machines in found.items()}


def _checks(cluster: Cluster) -> Mapping[str, Sequence[_Acting]]:
    """Return the checks that may act by the Machines that they watch: once for all VMs."""
    found: dict[str, list[_Acting]] = {}
    for some in check_scope.watches(cluster, kinds.CAPI_MHC).by_namespace.values():
        for watch in some:
            if (acting := _acting(watch, cluster)) is not None:
                for machine in acting.machines:
                    found.setdefault(machine, []).append(acting)
    return found


def _acting(watch: WatchedNodes, cluster: Cluster) -> _Acting | None:
    """Return what a check does with its Machines; None: nothing."""
    check, selection = watch.check, watch.selection
    unread = [selection.unseen]
    try:
        of = cluster.get(kinds.CAPI_CLUSTER, check.obj.namespace, check.cluster_name or "")
    except Unseen as unseen:
        unread.append(unseen.what)
    else:
        if of is None or of.at("spec", "paused").boolean:
            return None
    for each in inactive_reasons.lasting(check, cluster):
        if isinstance(each, str):
            return None
        unread.append(each.what)
    if timeline.timeline(check, cluster).never:
        return None
    status = check.obj["status"]
    expected, healthy = (status[key].integer or 0 for key in ("expectedMachines", "currentHealthy"))
    return _Acting(
        f"{check.obj.kind} {check.obj.full_name}",
        _names(selection.objects),
        _names(chain.from_iterable(machine_owners.kept(check, selection).values())),
        remediation_steps.budget(check, selection),
        max(expected - healthy, 0),
        next(filter(None, unread), ""),
    )


def _names(machines: Iterable[Object]) -> frozenset[str]:
    return frozenset(machine.full_name for machine in machines)
