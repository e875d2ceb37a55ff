"""VMs of a hosted cluster that restart in a drain although they can migrate, and who wants that.

HyperShift writes the eviction strategy External into the KubevirtMachineTemplate of each NodePool,
whatever the default of the cluster is. CAPK then drains the guest node and deletes the VMI.
Sources:
openshift/hypershift:hypershift-operator/controllers/nodepool/kubevirt/kubevirt.go
#virtualMachineTemplateBase #applyJsonPatches, :api/hypershift/v1beta1/hostedcluster_types.go
#JSONPatchAnnotation, :docs/content/how-to/kubevirt/configuring-vm-with-jsonpatch.md;
kubernetes-sigs/cluster-api-provider-kubevirt:pkg/kubevirt/machine.go#Create (writes nothing but
labels into a VM that exists).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.drain.external import external_movers
from virt_admit.model.commands import virtctl
from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import expand, vmis, vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.messages import names
from virt_admit.model.remediation import health_checks

_POOL: Final = "hypershift.openshift.io/nodePoolName"
_PATCH: Final = "hypershift.openshift.io/kubevirt-vm-jsonpatch"
_MIGRATES: Final = ("LiveMigrate", "LiveMigrateIfPossible")

READS: Final[Reads] = union(
    vmis.READS,
    expand.STRATEGY_READS,
    {
        CAPI_MACHINE: ("metadata.annotations", "spec.infrastructureRef.name"),
        VMI: (*CONDITIONS, "metadata.labels", "spec.evictionStrategy"),
    },
)


def notes(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield which VMs of a node HyperShift lets restart in a drain although they can migrate."""
    default = configuration.eviction_strategy(cluster)
    if default.value not in _MIGRATES:
        return
    here, _ = gather(vmis.on_node(cluster, node))
    found = sorted((each for each in here if _is_meant(each)), key=lambda each: each.full_name)
    if not found:
        return
    pools = names(sorted({_pool(each, cluster) for each in found}))
    by_hand = names(virtctl("migrate", each.name, vms.namespace_of(each)) for each in found)
    yield (
        f"HyperShift sets evictionStrategy External in the VMs of each NodePool ({pools}), so in "
        f"{names(each.full_name for each in found)}, where the cluster has {default.value} (of "
        f"{default.origin or 'KubeVirt'}). They can migrate (LiveMigratable), so that they need no "
        f"restart: migrate them before the drain ({by_hand}). To change it for good, replace "
        f"/spec/template/spec/evictionStrategy with LiveMigrate in annotation {_PATCH} of the "
        "NodePool, which replaces its nodes once; an edit of the VM lasts until its Machine is "
        "replaced"
    )


def _is_meant(vmi: Object) -> bool:
    external = vms.vmi_spec(vmi)["evictionStrategy"].text == "External"
    return external and _POOL in vmi.labels and vmis.migratable(vmi) is True


def _pool(vmi: Object, cluster: Cluster) -> str:
    """Return the NodePool of a VM, with its namespace where its Machine names it."""
    machines = external_movers.machines(vmi, cluster)
    named = (each.annotations.get(health_checks.NODE_POOL) for each in machines)
    return next(filter(None, named), vmi.labels[_POOL])
