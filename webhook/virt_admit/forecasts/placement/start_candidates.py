"""Where a VM that does not run could start now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import PVC, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_pod, launcher_resources
from virt_admit.model.lookups import is_absent
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import Pod


def next_vmi(vm: Object) -> Object:
    """Return the VMI that a VM would make, without what its instance type and preference add."""
    template = vms.vm_spec(vm)["template"]
    metadata = {
        "name": vm.name,
        "namespace": vms.namespace_of(vm),
        "labels": template.at("metadata", "labels").map,
    }
    return Object(
        {
            "apiVersion": VMI.api_version,
            "kind": VMI.kind,
            "metadata": metadata,
            "spec": template["spec"].map,
        }
    )


def start_target(vm: Object, cluster: Cluster) -> SchedulingTarget:
    """Return the pod with which a VM would start, and the nodes that would take it now.

    A hotplugged volume without its claim stays away, and keeps no VM from starting
    (kubevirt/kubevirt:pkg/virt-controller/watch/vmi/datavolumes.go#areDataVolumesReady).

    Raises:
        Unseen: the instance type or the preference of the VM cannot be read, or a claim of it does
            not exist yet, so that what KubeVirt would create is not known.
    """
    for claim in launcher_pod.claims(vms.vmi_spec(vm)):
        if cluster.get(PVC, vms.namespace_of(vm), claim) is None:
            raise Unseen(f"on which nodes claim {claim} will be, which does not exist yet")
    vmi, spec = next_vmi(vm), vms.vm_spec(vm)
    needed = candidates.demand(vmi, cluster, moves=False)
    attached = (c for c in needed.attached if not is_absent(cluster, PVC, vmi.namespace, c))
    needed = needed._replace(attached=tuple(attached))
    if spec["instancetype"].present or spec["preference"].present:
        needed = needed._replace(pod=_expanded(vm, vmi, needed.pod, cluster), sized=True)
    return candidates.placed(vmi, needed, cluster, moves=False)


def _expanded(vm: Object, vmi: Object, pod: Pod, cluster: Cluster) -> Pod:
    """Return the pod of the template of a VM with what its instance type and preference add.

    Raises:
        Unseen: they cannot be read.
    """
    given = expand(vm, cluster)
    requests = launcher_resources.certain_requests(given, cluster)
    own = launcher_pod.node_demand(expand(vmi, cluster), cluster, moment=True)
    demanded = launcher_pod.node_demand(given, cluster, moment=True)
    # the networks of the VM demand the rest
    others = {
        key: value for key, value in pod.node_selector.items() if key not in own.node_selector
    }
    return replace(
        pod,
        requests=requests,
        node_selector={**demanded.node_selector, **others},
        meanings={**pod.meanings, **demanded.meanings},
        node_affinity=demanded.node_affinity,
        forbidden_labels=demanded.forbidden_labels,
    ).with_few_demands()


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
