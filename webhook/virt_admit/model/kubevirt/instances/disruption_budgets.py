"""PodDisruptionBudgets that cover the pods of VMIs and prevent evictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, each, entry
from virt_admit.model.kubernetes.kinds import PDB
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause, problem_of

READS: Final[Reads] = {PDB: ("metadata.ownerReferences", "spec", "status.disruptionsAllowed")}


class _Budget(NamedTuple):
    budget: Object
    selector: selectors.Selector


def launcher_labels(obj: Object) -> Mapping[str, str]:
    """Return the labels of the virt-launcher pod of a VMI, or of the VMI of a VM.

    Source: pkg/virt-controller/services/template.go.
    """
    labels = vms.vmi_template(obj).at("metadata", "labels").texts
    return {**labels, "kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": obj.name}


def is_user_created(budget: Object) -> bool:
    """Whether a user created the PodDisruptionBudget, rather than an older KubeVirt for a VMI."""
    return (
        vmis.owner(budget, "VirtualMachineInstance") is None
        and vmis.owner(budget, "VirtualMachineInstanceMigration") is None
    )


def needs_scale(budget: Object) -> bool:
    """Whether the PodDisruptionBudget needs the scale of the pods' owner.

    A VMI has no scale, so such a budget never allows a disruption (kubevirt/kubevirt#18063).
    """
    least = budget.at("spec", "minAvailable")
    return budget.at("spec", "maxUnavailable").present or (least.text or "").endswith("%")


def _uncounted(budget: Object) -> str:
    """Return why a budget never allows a disruption of VMIs; empty: it may."""
    if not needs_scale(budget):
        return ""
    field = (
        "maxUnavailable"
        if budget.at("spec", "maxUnavailable").present
        else "minAvailable in percent"
    )
    return f": {field} counts replicas, and a VMI has no scale"


def forbids(budget: Object) -> bool:
    """Whether a budget of the pod of a VMI allows no disruption now, or never."""
    allowed = budget.at("status", "disruptionsAllowed").integer
    return needs_scale(budget) or (allowed is not None and allowed <= 0)


def covering(vmi: Object, cluster: Cluster) -> list[Object]:
    """Return the known budgets of users that select the pod of a VMI, or of the VMI of a VM."""
    labels = launcher_labels(vmi)
    known = entry(cluster, _budgets, vms.namespace_of(vmi)) or ()
    return [budget for budget, selector in known if selector.matches(labels)]


def blocking(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the Eviction API currently refuses to evict the VMI's pod,
    as far as budgets are known.

    Source: kubernetes pkg/registry/core/pod/storage/eviction.go#Create, which refuses a pod with
    several budgets.
    """
    found = covering(vmi, cluster)
    if len(found) > 1:
        selecting = names(sorted(budget.name for budget in found))
        reason = (
            f"PodDisruptionBudgets {selecting} select its pod, and the Eviction API refuses such "
            "pods"
        )
        return Problem(
            reason,
            "change the selectors so that only one budget selects it",
            ProblemCause.SEVERAL_BUDGETS,
        )
    for budget in found:
        if forbids(budget):
            remedy = "write an integer minAvailable" if needs_scale(budget) else "add a replica"
            reason = (
                f"PodDisruptionBudget {budget.name} forbids the eviction of its "
                f"pod{_uncounted(budget)}"
            )
            return Problem(reason, remedy, id=problem_of(ProblemCause.BUDGET, budget))
    return None


def _budgets(cluster: Cluster) -> Mapping[str, list[_Budget]]:
    """Return the budgets by namespace.

    A budget without a selector covers no pod; an empty selector covers all pods.
    """
    found: dict[str, list[_Budget]] = {}
    for namespace, budget in filter(None, each(cluster, PDB, _of_user)):
        found.setdefault(namespace, []).append(budget)
    return found


def _of_user(budget: Object) -> tuple[str, _Budget] | None:
    selector = budget.at("spec", "selector")
    if not selector.is_map or not is_user_created(budget):
        return None
    return vms.namespace_of(budget), _Budget(budget, selectors.parse(selector.value))
