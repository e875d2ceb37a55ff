"""The VMs that an obsolete CPU model affects.

The node labeller removes an obsolete model from all nodes. A VM with that model then finds no node.
It neither starts again nor migrates, because a migration starts another pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, cached, each
from virt_admit.model.kubernetes.kinds import NODE, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import cpu_models, vmis, vms
from virt_admit.model.kubevirt.settings import configuration

READS: Final[Reads] = {
    VM: ("spec.template.spec.domain.cpu.model",),
    VMI: ("metadata.ownerReferences", "spec.domain.cpu.model", "status.phase"),
    NODE: ("metadata.labels", f"metadata.annotations.{cpu_models.SKIP_NODE}"),
}


def newly_obsolete(obj: Object, old: Object | None) -> frozenset[str]:
    """Return the models that this HyperConverged or KubeVirt makes obsolete, unlike the old one."""
    models = configuration.own_obsolete_models(obj)
    return models if old is None else models - configuration.own_obsolete_models(old)


@cached
def vms_by_model(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """Return the known VMs by the CPU model they name, and running VMIs whose VM is unread."""
    found: dict[str, list[str]] = {}
    seen = set()
    for name, model in each(cluster, VM, _of_vm):
        seen.add(name)
        if model:
            found.setdefault(model, []).append(name)
    for name, model, vm in filter(None, each(cluster, VMI, _of_vmi)):
        if vm not in seen:
            found.setdefault(model, []).append(name)
    return {model: sorted(names) for model, names in found.items()}


def _of_vm(vm: Object) -> tuple[str, str | None]:
    return vm.full_name, vm.at("spec", "template", "spec", "domain", "cpu", "model").text


def _of_vmi(vmi: Object) -> tuple[str, str, str] | None:
    """Return name and model of a VMI that runs, and the name of its VM."""
    model = vmi.at("spec", "domain", "cpu", "model").text
    owner = vmis.owner(vmi, "VirtualMachine")
    if model and vmis.running(vmi):
        return vmi.full_name, model, f"{vms.namespace_of(vmi)}/{owner}"
    return None


def skipped_nodes(cluster: Cluster, model: str) -> Iterator[str]:
    """Yield the known nodes that the labeller skips and that therefore still offer a model."""
    for node in cluster.known(NODE):
        offered = node.labels.get(cpu_models.OFFERED + model) == "true"
        if offered and cpu_models.SKIP_NODE in node.annotations:
            yield node.name
