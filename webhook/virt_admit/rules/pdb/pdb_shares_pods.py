"""Two PodDisruptionBudgets select the same pod, which is not of a VM.

**Why.** The Eviction API refuses each pod that more than one budget selects, whatever they allow. So ``kubectl drain`` gives up
at its node, and an upgrade stops there.

**Fix.** Keep one budget for these pods, or narrow a selector. A chart often brings one of them.
"""

from virt_admit.forecasts.drain.budgets import evicted_pods, operator_budgets, pod_budgets
from virt_admit.model.commands import kubectl
from virt_admit.rule import (
    PDB,
    POD,
    Action,
    Cluster,
    Context,
    Finding,
    Findings,
    Object,
    ProblemCause,
    Unseen,
    count,
    gather,
    names,
    problem_of,
    rule,
)


@rule(
    kinds=(PDB,),
    reads={
        PDB: ("spec.selector", "metadata.ownerReferences", "metadata.labels"),
        POD: (
            "metadata.labels",
            "metadata.ownerReferences",
            f"metadata.annotations.{evicted_pods.MIRROR}",
            "spec.nodeName",
            "status.phase",
        ),
    },
    action=Action.WARN,
    event="DrainBlocked",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/registry/core/pod/storage/eviction.go#Create",
        "kubernetes/kubernetes#75957",
    ),
)
def check(budget: Object, context: Context) -> Findings:
    if not budget.at("spec", "selector").is_map:
        return
    cluster, namespace = context.cluster, budget.namespace or "default"
    pods, unseen = gather(pod_budgets.selected(budget, cluster.list(POD, namespace)))
    others: dict[str, None] = {}
    shared = []
    for pod in pods:
        found = [each.name for each in _others(budget, pod, cluster)]
        if found and _is_evicted(pod):
            shared.append(pod)
            others |= dict.fromkeys(found)
    told = [name for name in others if name < budget.name]
    if shared and not told:  # once for each pod: the first of its budgets tells
        path = budget.at("spec", "selector").path
        also = f"PodDisruptionBudget{'s' * (len(others) > 1)} {names(sorted(others))}"
        on = sorted({pod.at("spec", "nodeName").text or "" for pod in shared})
        yield Finding(
            path,
            f"{also} select{'s' * (len(others) == 1)} {count(len(shared), 'pod')} of it too, such as {shared[0].name}: the "
            f"Eviction API refuses such pods, whatever the budgets allow, so a drain of {names(on)} never ends. Keep one "
            "budget for these pods, or narrow a selector.",
            value=sorted(others),
            problem=problem_of(ProblemCause.SEVERAL_BUDGETS, budget),
            command=kubectl("describe", PDB, "", namespace),
        )
    elif unseen:
        raise Unseen(unseen)


def _others(budget: Object, pod: Object, cluster: Cluster) -> list[Object]:
    """Return the other budgets of a pod; none where one operator replaces its budget by another one."""
    every = pod_budgets.selecting(pod, cluster)
    operators = {operator_budgets.operator(each) for each in every}
    if len(operators) == 1 and None not in operators:
        return []
    return [each for each in every if each.name != budget.name]


def _is_evicted(pod: Object) -> bool:
    """Return whether a drain evicts a pod by its budgets: not one of a VM, one that ends, or one that has not started."""
    waits = pod.at("status", "phase").text == "Pending" or not pod.at("spec", "nodeName").text
    return evicted_pods.is_evicted(pod) and not (pod.deleted or waits or evicted_pods.is_of_vm(pod))
