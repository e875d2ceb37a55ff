"""Required pod affinity and anti-affinity of VMIs, judged without the pods that run just now.

Sources: k8s.io/kubernetes pkg/scheduler/framework/plugins/interpodaffinity; kubevirt/kubevirt:
docs, live migration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POOL, VM, VMIRS
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.disruption_budgets import launcher_labels
from virt_admit.model.scheduler.pod_terms import PodTerm, PodTerms, pod_terms

READS: Final[Reads] = {
    VM: (
        "spec.running",
        "spec.runStrategy",
        "spec.template.metadata.labels",
        "spec.template.spec.affinity.podAffinity",
        "spec.template.spec.affinity.podAntiAffinity",
    )
}
"""The fields that ``members`` reads."""


def affinity(obj: Object) -> Field:
    """Return ``podAffinity`` of the VMI of an object."""
    return vms.vmi_spec(obj).at("affinity", "podAffinity")


def anti_affinity(obj: Object) -> Field:
    """Return ``podAntiAffinity`` of the VMI of an object."""
    return vms.vmi_spec(obj).at("affinity", "podAntiAffinity")


def required_affinity(obj: Object) -> tuple[PodTerm, ...]:
    """Return the required terms of the pod affinity of the VMI of an object.

    Raises:
        Unseen: there are too many.
    """
    return _terms(obj).affinity


def required_anti_affinity(obj: Object) -> tuple[PodTerm, ...]:
    """Return the required terms of the pod anti-affinity of the VMI of an object.

    Raises:
        Unseen: there are too many.
    """
    return _terms(obj).anti_affinity


def _terms(obj: Object) -> PodTerms:
    block = vms.vmi_spec(obj)["affinity"]
    if not block.is_map:
        return PodTerms()
    found = pod_terms(block, vms.namespace_of(obj), obj.name, launcher_labels(obj))
    if found.unsearched is not None:
        raise Unseen(found.unsearched.what)
    return found


def matches_itself(obj: Object, term: PodTerm) -> bool:
    """Return whether a term of the VMI of an object selects its own pod."""
    return term.matches(vms.namespace_of(obj), {}, launcher_labels(obj))


def members(obj: Object, term: PodTerm, cluster: Cluster) -> int:
    """Return how many VMs, this object included, have the same term and match it:
    no two share a domain.

    Raises:
        Unseen: VMs cannot be read.
    """
    others = (
        other for namespace in sorted(term.namespaces) for other in cluster.list(VM, namespace)
    )
    return _size(obj) + sum(
        1 for other in others if not _same(other, obj) and _runs(other) and _joins(other, term)
    )


def _size(obj: Object) -> int:
    """Return how many VMIs the object itself makes."""
    if kinds.of(obj) not in (POOL, VMIRS):
        return 1
    replicas = obj.at("spec", "replicas")
    return replicas.integer or 0 if replicas.present else 1


def _same(other: Object, obj: Object) -> bool:
    """Return whether the VM is the object itself, or the VM of a VMI."""
    return other.name == obj.name and vms.namespace_of(other) == vms.namespace_of(obj)


def _runs(vm: Object) -> bool:
    return not vm.deleted and vms.run_strategy(vms.vm_spec(vm)) in (
        "Always",
        "RerunOnFailure",
        "Once",
    )


def _joins(vm: Object, term: PodTerm) -> bool:
    return matches_itself(vm, term) and term in required_anti_affinity(vm)


def domains(key: str, labels: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the number of values of a topology label on nodes; None: some node lacks it,
    where the term never binds.
    """
    found = {value if isinstance(value := given.get(key), str) else None for given in labels}
    return None if None in found else len(found)
