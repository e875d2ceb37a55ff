"""The VMs that an obsolete CPU model affects.

The node labeller removes an obsolete model from all nodes. A VM with that model then finds no node. It neither starts
again nor migrates, because a migration starts another pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, each
from virt_admit.model.kubernetes.kinds import NODE, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import cpu_models, vmis
from virt_admit.model.kubevirt.settings import configuration

READS: Final[Reads] = {
    VM: ("spec.template.spec.domain.cpu.model",),
    VMI: ("metadata.ownerReferences", "spec.domain.cpu.model", "status.phase"),
    NODE: ("metadata.labels", f"metadata.annotations.{cpu_models.SKIP_NODE}"),
}


def newly_obsolete(obj: Object, old: Object | None) -> frozenset[str]:
    """Return the models that are obsolete with this HyperConverged or KubeVirt but not with the old one."""
    models = configuration.own_obsolete_models(obj)
    return models if old is None else models - configuration.own_obsolete_models(old)


def vms_by_model(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """Return the known VMs by the CPU model that they name, and running VMIs whose VM cannot be read."""
    return cluster.cached(_vms_by_model)


def _vms_by_model(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for model, name in filter(None, each(cluster, VM, _of_vm)):
        found.setdefault(model, []).append(name)
    for model, vmi in filter(None, each(cluster, VMI, _of_vmi)):
        if not _has_vm(vmi, cluster):
            found.setdefault(model, []).append(vmi.full_name)
    return {model: sorted(names) for model, names in found.items()}


def _of_vm(vm: Object) -> tuple[str, str] | None:
    model = vm.at("spec", "template", "spec", "domain", "cpu", "model").text
    return (model, vm.full_name) if model else None


def _of_vmi(vmi: Object) -> tuple[str, Object] | None:
    model = vmi.at("spec", "domain", "cpu", "model").text
    return (model, vmi) if model and vmis.running(vmi) else None


def _has_vm(vmi: Object, cluster: Cluster) -> bool:
    try:
        return vmis.owner_vm(vmi, cluster) is not None
    except Unseen:
        return False


def skipped_nodes(cluster: Cluster, model: str) -> Iterator[str]:
    """Yield the known nodes that the labeller skips and that therefore still offer a model."""
    for node in cluster.known(NODE):
        if cpu_models.SKIP_NODE in node.annotations and node.labels.get(cpu_models.OFFERED + model) == "true":
            yield node.name
