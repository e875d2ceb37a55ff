"""A PodDisruptionBudget for virtual machines never allows a disruption.

**Why.** For ``maxUnavailable``, and for ``minAvailable`` in percent, the controller needs the scale
of the pods' owner. A VMI has no scale, so the controller cannot compute the budget and allows 0
disruptions. Every drain that would shut one of these VMs down hangs.

An integer ``minAvailable`` blocks as well if it is not less than the number of VMs that the
selector names.

**Fix.** Write ``minAvailable`` as an integer below the number of VMs, or let the VMs migrate: a
drain does not evict those.
"""

from virt_admit.forecasts.drain.budgets import operator_budgets
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import PDB, VM, VMI
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import disruption_budgets, vms
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, count, names, rule


@rule(
    kinds=(PDB,),
    reads={
        VMI: ("metadata.labels", "spec.evictionStrategy"),
        VM: ("spec.template.metadata.labels", "spec.template.spec.evictionStrategy"),
    },
    action=Action.AUDIT,
    urgency=Urgency.STUCK,
    event="DrainBlocked",
    at_admission=False,
    sources=("kubevirt/kubevirt#18063", "kubevirt/kubevirt#13764"),
)
def check(budget: Object, context: Context) -> Findings:
    selector = budget.at("spec", "selector")
    of_user = disruption_budgets.is_user_created(budget)
    if not selector.is_map or not of_user or operator_budgets.operator(budget):
        return
    chosen = selectors.parse(selector.value)
    if not disruption_budgets.needs_scale(budget):
        yield from _too_many(budget, chosen, context.cluster)
        return
    covered = _covered_vms(chosen, vms.namespace_of(budget), context.cluster)
    if covered:
        limit = budget.at("spec", "maxUnavailable")
        limit = limit if limit.present else budget.at("spec", "minAvailable")
        yield Finding(
            limit.path,
            f"{show(limit.value)} needs a scale sub-resource, which VMs lack, so drains hang: 0 "
            f"disruptions are allowed for {covered}. Write an integer minAvailable.",
            problem=problem_of(ProblemCause.BUDGET, budget),
        )


def _too_many(budget: Object, selector: selectors.Selector, cluster: Cluster) -> Findings:
    """Yield a finding if an integer ``minAvailable`` names as many pods as the named VMs have.

    Only for selectors that name the VMs: of a label another VM or another application may have a
    pod.
    """
    least = budget.at("spec", "minAvailable")
    named = selector.allowed_values("vm.kubevirt.io/name") or frozenset()
    if least.integer is None or not named or least.integer < len(named):
        return
    evicted: dict[str, None] = {}
    for kind in (VMI, VM):
        for obj in cluster.known(kind, vms.namespace_of(budget)):
            if obj.name in named and vms.vmi_spec(obj)["evictionStrategy"].text == "None":
                evicted[obj.full_name] = None
    if evicted:
        pods = count(len(named), "pod")
        yield Finding(
            least.path,
            f"minAvailable is {least.integer} for {pods}, so drains hang: a drain cannot evict "
            f"{names(evicted, 70)}. Add a VM that the selector names, or let the VM migrate.",
            problem=problem_of(ProblemCause.BUDGET, budget),
        )


def _covered_vms(selector: selectors.Selector, namespace: str, cluster: Cluster) -> str:
    """Return the name of a VM, or the label, that the selector of a budget matches.

    Empty if it matches no VM.

    Raises:
        Unseen: no known VM matches, but not every VM can be read.
    """
    if "virt-launcher" in (selector.allowed_values("kubevirt.io") or ()):
        return "kubevirt.io=virt-launcher"
    unseen: Unseen | None = None
    for kind in (VMI, VM):
        try:
            for obj in cluster.list(kind, namespace):
                if selector.matches(disruption_budgets.launcher_labels(obj)):
                    return obj.full_name
        except Unseen as error:
            unseen = unseen or error
    if unseen is not None:
        raise unseen
    return ""
