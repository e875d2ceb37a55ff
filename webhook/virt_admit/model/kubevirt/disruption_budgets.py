"""PodDisruptionBudgets over the pods of VMIs: which of them keep a VMI from being shut down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model import selectors
from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import PDB
from virt_admit.model.kubevirt import vmis, vms
from virt_admit.model.objects import Object
from virt_admit.model.reads import Reads

READS: Final[Reads] = {PDB: ("metadata.ownerReferences", "spec", "status.disruptionsAllowed")}


class _Budget(NamedTuple):
    budget: Object
    selector: selectors.Selector


def launcher_labels(obj: Object) -> Mapping[str, str]:
    """The labels by which others may select the virt-launcher pod of a VMI, or of the VMI that a VM would make
    (pkg/virt-controller/services/template.go)."""
    labels = vms.vmi_template(obj).at("metadata", "labels").texts
    return {**labels, "kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": obj.name}


def is_user_created(budget: Object) -> bool:
    """Whether a PodDisruptionBudget is somebody's own, not one that an older KubeVirt made for a VMI."""
    return (
        vmis.owner(budget, "VirtualMachineInstance") is None
        and vmis.owner(budget, "VirtualMachineInstanceMigration") is None
    )


def needs_scale(budget: Object) -> bool:
    """Whether a PodDisruptionBudget has a form that asks the pods' owner for its scale, which a VMI has not: then it
    allows no disruption, ever (kubevirt/kubevirt#18063)."""
    least = budget.at("spec", "minAvailable")
    return budget.at("spec", "maxUnavailable").present or (least.text or "").endswith("%")


def blocking(vmi: Object, cluster: Cluster) -> Object | None:
    """A known PodDisruptionBudget that forbids the eviction of the VMI's pod just now."""
    labels = launcher_labels(vmi)
    for budget, selector in cluster.cached(_budgets).get(vms.namespace_of(vmi), ()):
        if selector.matches(labels):
            allowed = budget.at("status", "disruptionsAllowed").integer
            if needs_scale(budget) or (allowed is not None and allowed <= 0):
                return budget
    return None


def _budgets(cluster: Cluster) -> Mapping[str, list[_Budget]]:
    """By namespace. Without a selector a budget covers no pod; an empty one covers all."""
    found: dict[str, list[_Budget]] = {}
    for budget in cluster.known(PDB):
        selector = budget.at("spec", "selector")
        if selector.is_map and is_user_created(budget):
            found.setdefault(vms.namespace_of(budget), []).append(_Budget(budget, selectors.parse(selector.value)))
    return found
