"""Who moves a VM with the eviction strategy ``External``: a controller outside KubeVirt,
as far as objects show it.

Cluster API provider KubeVirt (CAPK) sees the mark of KubeVirt on the VMI, drains the guest's own
node for at most 10 minutes and deletes the VMI, also where the guest's API does not answer. The VM
starts again by its run strategy. Sources:
kubernetes-sigs/cluster-api-provider-kubevirt:pkg/kubevirt/machine.go#DrainNodeIfNeeded,
:controllers/kubevirtmachine_controller.go#reconcileNormal; openshift/hypershift:
control-plane-operator/controllers/hostedcontrolplane/v2/capi_provider/component.go (its name in a
hosted control plane).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    DEPLOYMENT,
    NODE,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.lookups import find, grouped
from virt_admit.model.remediation import health_checks, machine_drain

READS: Final[Reads] = union(
    {CAPI_MACHINE: machine_drain.DELETED_READS[CAPI_MACHINE]},
    {
        DEPLOYMENT: ("status.readyReplicas",),
        CAPI_MACHINE: (
            *("metadata.annotations", "metadata.labels", "metadata.ownerReferences"),
            *("spec.clusterName", "spec.infrastructureRef.name", "status.nodeRef.name"),
        ),
        CAPI_CLUSTER: ("spec.paused",),
        NODE: ("spec.unschedulable",),
        VM: ("metadata.labels",),
        VMI: ("metadata.labels", "status.nodeName"),
    },
)
MARK_READS: Final[Reads] = union(
    vmis.OWNER_READS, {VM: ("metadata.labels",), VMI: ("metadata.labels",)}
)

_HOSTED, _PROVIDER = "capi-provider", "capk-controller-manager"


def working(vmi: Object, cluster: Cluster) -> str:
    """Return the Deployment of CAPK that reconciles the machine of a VMI; empty: none does,
    or that is not known.
    """
    namespace = vmi.labels.get(f"{vms.KUBEVIRT_MACHINE}namespace")
    if not vmi.is_true("Ready") or all(
        _is_paused(each, cluster) for each in machines(vmi, cluster)
    ):
        return ""
    for each in _providers(cluster):
        if each.namespace == namespace or each.name != _HOSTED:
            return f"Deployment {each.full_name}"
    return ""


_SOON: Final = timedelta(hours=1)
"""The deletion of a Machine takes less, unless its drain or its volumes hold it up."""


def leaving(vmi: Object, cluster: Cluster) -> str:
    """Return the Machine that is being deleted with a VMI, as kind and name; empty: none is, that
    is not known, or something holds its deletion up.
    """
    if vmi.at("spec", "evictionStrategy").text != "External" or not working(vmi, cluster):
        return ""
    for each in machines(vmi, cluster):
        asked = clock.since(each.metadata["deletionTimestamp"].text, cluster)
        if asked is not None and asked < _SOON and not machine_drain.is_held_up(each):
            return f"Machine {each.full_name}"
    return ""


def replaced(vmi: Object, cluster: Cluster) -> str:
    """Return how the node of a VM leaves its guest cluster, so that another VM takes its place;
    empty: the VM is not a worker of a guest cluster whose Machine would be made again.

    The deletion of a Machine drains its node, and deletes its VM then. With the eviction strategy
    External the provider does both for a drain (openshift/hypershift:hypershift-operator/
    controllers/nodepool/kubevirt/kubevirt.go#virtualMachineTemplateBase sets it in later releases).
    """
    found = machines(vmi, cluster)
    if len(found) != 1 or found[0].deleted or not found[0].owned_by(CAPI_MACHINE_SET.kind):
        return ""
    machine = found[0]
    if _CONTROL_PLANE in machine.labels or _is_paused(machine, cluster):
        return ""
    node = machine.at("status", "nodeRef", "name").text or machine.name
    host = vmi.at("status", "nodeName").text or ""
    own = find(cluster, NODE, "", host)
    first = ""  # kube-scheduler may place the new VM on the host that is to be drained
    if host and (own is None or own.at("spec", "unschedulable").boolean is not True):
        first = f"cordon {host} ({shell('kubectl', 'cordon', argument(host))}), "
    pool = machine.annotations.get(health_checks.NODE_POOL)
    owner = f"NodePool {pool}" if pool else f"MachineSet {machine.owned_by(CAPI_MACHINE_SET.kind)}"
    where = "by HyperShift, as later releases do" if pool else "in its KubevirtMachineTemplate"
    guests = machine.at("spec", "clusterName").text or "?"
    return typed(
        f"{first}drain node {node} of its guest cluster {guests} there, then delete its "
        f"Machine, in whose place {owner} makes another one with a new VM",
        kubectl("delete", CAPI_MACHINE, machine.name, machine.namespace),
        f"a drain does the same by itself once its VMs get evictionStrategy External {where}",
    )


_CONTROL_PLANE: Final = "cluster.x-k8s.io/control-plane"


def machines(vmi: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the known Machines whose VM a VMI is, as its labels say."""
    name, namespace = (
        vmi.labels.get(f"{vms.KUBEVIRT_MACHINE}{part}") for part in ("name", "namespace")
    )
    return (entry(cluster, _machines, (namespace, name)) or ()) if name and namespace else ()


_CLUSTER: Final = "cluster.x-k8s.io/cluster-name"


def gone(vmi: Object, cluster: Cluster) -> str:
    """Return that the machine of a VMI does not exist any more, so that nothing moves the VMI, as a
    clause; empty: it may exist.

    Cluster API may run in another cluster: Machines of the same guest cluster show that it does
    not. CAPK leaves a KubevirtMachine without a Machine alone
    (kubevirtmachine_controller.go#Reconcile).
    """
    name, namespace = (
        vmi.labels.get(f"{vms.KUBEVIRT_MACHINE}{part}", "") for part in ("name", "namespace")
    )
    guests = vmi.labels.get(_CLUSTER, "")
    if not name or not namespace or not guests or unlisted(cluster, CAPI_MACHINE):
        return ""
    if entry(cluster, _machines, (namespace, name)):
        return ""
    if (namespace, guests) not in cluster.cached(_clusters):
        return ""
    return f"no Machine of cluster {guests} is of KubevirtMachine {namespace}/{name} any more"


def _clusters(cluster: Cluster) -> frozenset[tuple[str, str | None]]:
    """Return the namespaces and names of the Clusters that have Machines: once for all VMs."""
    every = cluster.known(CAPI_MACHINE)
    return frozenset((each.namespace, each.at("spec", "clusterName").text) for each in every)


def _machines(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the Machines by their namespace and the name of their KubevirtMachine."""
    return grouped(
        cluster.known(CAPI_MACHINE),
        lambda each: (each.namespace, each.at("spec", "infrastructureRef", "name").text or ""),
    )


@cached
def _providers(cluster: Cluster) -> tuple[Object, ...]:
    """Return the Deployments of CAPK with a ready pod."""
    known = (
        each for each in cluster.known(DEPLOYMENT) if each.at("status", "readyReplicas").integer
    )
    return tuple(each for each in known if each.name.startswith(_PROVIDER) or each.name == _HOSTED)


def _is_paused(machine: Object, cluster: Cluster) -> bool:
    """Return whether Cluster API leaves a Machine alone, or may do so: its cluster is not known."""
    name = machine.at("spec", "clusterName").text or ""
    owner = find(cluster, CAPI_CLUSTER, machine.namespace, name)
    paused = owner is None or bool(owner.at("spec", "paused").boolean)
    return paused or machine.annotation(health_checks.PAUSED).present


def may_move(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a label or an owner shows that a controller moves a VMI, or may do so."""
    return vms.has_mover(vmi, vmi.labels) or bool(named(vmi, cluster))


def named(vmi: Object, cluster: Cluster) -> str:
    """Return a label of a VMI or its VM that may name its controller; empty: none does.

    Annotations are not read: one that changes would be a reason to judge every drain of its node
    again.
    """
    vm = vmis.known_vm(vmi, cluster)
    return next(
        (mark for obj in (vmi, vm) if obj is not None for mark in vms.own_marks(obj, "label")), ""
    )
