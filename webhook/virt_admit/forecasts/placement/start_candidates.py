"""Where a VM that does not run could start now."""

from __future__ import annotations

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import PVC, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod


def start_target(vm: Object, cluster: Cluster) -> SchedulingTarget:
    """Return the pod with which a VM would start, and the nodes that would take it now.

    Raises:
        Unseen: the VM takes its size from an instance type, or a claim of it does not exist yet, so that what KubeVirt
            would create is not known.
    """
    spec = vms.vm_spec(vm)
    if spec["instancetype"].present or spec["preference"].present:
        raise Unseen(f"the VMI that KubeVirt makes of the instance type or preference of {vm.full_name}")
    template = spec["template"]
    for claim in launcher_pod.claims(template["spec"]):
        if cluster.get(PVC, vms.namespace_of(vm), claim) is None:
            raise Unseen(f"on which nodes claim {claim} will be, which does not exist yet")
    metadata = {"name": vm.name, "namespace": vms.namespace_of(vm), "labels": template.at("metadata", "labels").map}
    vmi = {"apiVersion": VMI.api_version, "kind": VMI.kind, "metadata": metadata, "spec": template["spec"].map}
    return candidates.placed(Object(vmi), candidates.demand(Object(vmi), cluster, moves=False), cluster, moves=False)
