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
from typing import Final

from virt_admit.forecasts.remediation import inactive_reasons, remediation_steps, timeline
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, gather
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


def replaced_by(vmi: Object, cluster: Cluster) -> str:
    """Return the MachineHealthCheck that replaces a VM once its host is lost; empty: none does.

    Raises:
        Unseen: one may, and what decides it could not be read.
    """
    machine = _machine(vmi, cluster)
    if machine is None:
        return ""
    host = vmi.at("status", "nodeName").text or ""
    for watch in check_scope.watches(cluster, kinds.CAPI_MHC).of(machine.namespace):
        if machine.full_name in _names(watch.selection.objects) and _acts(watch, host, cluster):
            return f"{watch.check.obj.kind} {watch.check.obj.full_name}"
    return ""


def _machine(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the Machine of Cluster API of a VM; None: it is not the node of a tenant cluster."""
    name, namespace = (
        vmi.labels.get(f"{vms.KUBEVIRT_MACHINE}{part}", "") for part in ("name", "namespace")
    )
    found = entry(cluster, _machines, (namespace, name)) or () if name else ()
    return found[0] if len(found) == 1 else None


def _machines(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    return grouped(
        (
            each
            for each in cluster.known(kinds.CAPI_MACHINE)
            if each.at("spec", "infrastructureRef", "kind").text == _KIND and not each.deleted
        ),
        lambda each: (each.namespace, each.at("spec", "infrastructureRef", "name").text or ""),
    )


def _acts(watch: WatchedNodes, host: str, cluster: Cluster) -> bool:
    """Return whether a check acts on its Machines whose VMs are on a lost host.

    Raises:
        Unseen: what decides it could not be read.
    """
    check, selection = watch.check, watch.selection
    of = cluster.get(kinds.CAPI_CLUSTER, check.obj.namespace, check.cluster_name or "")
    lasting = list(inactive_reasons.lasting(check, cluster))
    if (
        of is None
        or of.at("spec", "paused").boolean
        or any(isinstance(each, str) for each in lasting)
    ):
        return False
    guests, unseen = gather(vmis.on_node(cluster, host))
    unread = [each.what for each in lasting if isinstance(each, Unseen)]
    if unread := [*unread, *filter(None, (selection.unseen, unseen))]:
        raise Unseen(unread[0])
    lost = _names(machine for vmi in guests if (machine := _machine(vmi, cluster)) is not None)
    lost &= _names(selection.objects)
    kept = _names(each for some in machine_owners.kept(check, selection).values() for each in some)
    status = check.obj["status"]
    expected, healthy = (status[key].integer or 0 for key in ("expectedMachines", "currentHealthy"))
    down = len(lost) + max(expected - healthy, 0)
    refuses = remediation_steps.budget(check, selection).refuses(down)
    return not (refuses or lost & kept or timeline.timeline(check, cluster).never)


def _names(machines: Iterable[Object]) -> set[str]:
    return {machine.full_name for machine in machines}
