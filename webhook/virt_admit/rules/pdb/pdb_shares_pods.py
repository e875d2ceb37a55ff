"""Two PodDisruptionBudgets select the same pod, which is not of a VM.

**Why.** The Eviction API refuses each pod that more than one budget selects, whatever they allow.
So ``kubectl drain`` gives up at its node, and an upgrade stops there.

**Fix.** Keep one budget for these pods, or narrow a selector. A chart often brings one of them.
"""

from collections.abc import Mapping, Sequence

from virt_admit.forecasts.drain.budgets import evicted_pods, operator_budgets, pod_budgets
from virt_admit.model.commands import kubectl
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import PDB, POD, VMI
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, count, names, rule


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
    urgency=Urgency.STUCK,
    event="DrainBlocked",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/registry/core/pod/storage/eviction.go#Create",
        "kubernetes/kubernetes#75957",
    ),
)
def check(budget: Object, context: Context) -> Findings:
    if not budget.at("spec", "selector").is_map or _is_of_kubevirt(budget):
        return
    cluster, namespace = context.cluster, budget.namespace or "default"
    shared = cluster.cached(_told_by).get((namespace, budget.name))
    if shared:
        others = sorted({name for _, names_of in shared for name in names_of})
        pods = [pod for pod, _ in shared]
        path = budget.at("spec", "selector").path
        also = f"PodDisruptionBudget{'s' * (len(others) > 1)} {names(others)}"
        on = sorted({pod.at("spec", "nodeName").text or "" for pod in pods})
        yield Finding(
            path,
            f"{also} select{'s' * (len(others) == 1)} {count(len(pods), 'pod')} of it too, such as "
            f"{pods[0].name}: the Eviction API refuses such pods, whatever the budgets allow, so a "
            f"drain of {names(on)} never ends. Keep one budget for these pods, or narrow a "
            "selector.",
            value=others,
            problem=problem_of(ProblemCause.SEVERAL_BUDGETS, budget),
            command=kubectl("describe", PDB, "", namespace),
        )
    elif unseen := unlisted(cluster, POD):
        raise Unseen(unseen)


def _is_of_kubevirt(budget: Object) -> bool:
    """Return whether KubeVirt wrote a budget: it selects the pods of one VM alone."""
    return any(each["kind"].text == VMI.kind for each in budget.metadata["ownerReferences"].items())


def _told_by(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[tuple[Object, Sequence[str]]]]:
    """Return the pods with several budgets and the names of the others, by the budget that tells:
    the first by name.
    """
    found: dict[tuple[str, str], list[tuple[Object, Sequence[str]]]] = {}
    for pod in cluster.known(POD):
        budgets = _budgets(pod, cluster) if _is_evicted(pod) else ()
        if len(budgets) > 1:
            first, *others = (each.name for each in budgets)
            found.setdefault((pod.namespace or "default", first), []).append((pod, others))
    return found


def _budgets(pod: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the budgets of a pod, by name; none where one operator replaces its budget by another
    one.
    """
    every = pod_budgets.selecting(pod, cluster)
    operators = {operator_budgets.operator(each) for each in every} if len(every) > 1 else set()
    return () if len(operators) == 1 and None not in operators else every


def _is_evicted(pod: Object) -> bool:
    """Return whether a drain evicts a pod by its budgets: not one of a VM, one that ends, or one
    that has not started.
    """
    waits = pod.at("status", "phase").text == "Pending" or not pod.at("spec", "nodeName").text
    return evicted_pods.is_evicted(pod) and not (pod.deleted or waits or evicted_pods.is_of_vm(pod))
