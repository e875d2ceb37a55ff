"""Where a VM that does not run could start now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import PVC, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import names


def start_target(vm: Object, cluster: Cluster) -> SchedulingTarget:
    """Return the pod with which a VM would start, and the nodes that would take it now.

    Raises:
        Unseen: the VM takes its size from an instance type, or a claim of it does not exist yet, so
            that what KubeVirt would create is not known.
    """
    spec = vms.vm_spec(vm)
    if spec["instancetype"].present or spec["preference"].present:
        raise Unseen(
            f"the VMI that KubeVirt makes of the instance type or preference of {vm.full_name}"
        )
    template = spec["template"]
    for claim in launcher_pod.claims(template["spec"]):
        if cluster.get(PVC, vms.namespace_of(vm), claim) is None:
            raise Unseen(f"on which nodes claim {claim} will be, which does not exist yet")
    metadata = {
        "name": vm.name,
        "namespace": vms.namespace_of(vm),
        "labels": template.at("metadata", "labels").map,
    }
    vmi = {
        "apiVersion": VMI.api_version,
        "kind": VMI.kind,
        "metadata": metadata,
        "spec": template["spec"].map,
    }
    return candidates.placed(
        Object(vmi), candidates.demand(Object(vmi), cluster, moves=False), cluster, moves=False
    )


def vanished(causes: Collection[str], cluster: Cluster) -> str:
    """Return that no node at all has the CPU features that a pod asks for; empty: one has, or
    something else refuses it.

    A VM with host-model keeps the features of its migration, and a later node labeller may not
    write their labels (kubevirt/ kubevirt pull requests 17812 and 17947).
    """
    nodes = candidates.scheduler(cluster).state.nodes.values()
    asked = [
        f"{launcher_pod.CPU_FEATURE}{cause.removeprefix(_FEATURE)}"
        for cause in causes
        if cause.startswith(_FEATURE)
    ]
    if (
        not asked
        or len(asked) < len(causes)
        or any(label in node.labels for node in nodes for label in asked)
    ):
        return ""
    return (
        f"its pod's nodeSelector asks for {names(asked, 240)}, which no node has, its own neither"
    )


_FEATURE: Final = "CPU feature "
