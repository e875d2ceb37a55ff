"""A PodDisruptionBudget of pods that are not VMs can never allow an eviction.

**Why.** The Eviction API refuses every pod of the budget, whatever its health. The drain of each node with such a pod
never completes, and an upgrade stops there.

**Fix.** Add a replica, so that there are more than ``minAvailable``, or write ``maxUnavailable: 1``.

Budgets that an operator writes, such as those of Longhorn and Rook, are not judged here: ``virt-admit drain`` says
whether the operator makes way.
"""

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.budgets import operator_budgets
from virt_admit.model.kubernetes import selectors
from virt_admit.rule import PDB, POD, Action, Context, Finding, Findings, Object, Unseen, count, gather, rule


@rule(
    kinds=(PDB,),
    reads={kind: paths for kind, paths in pod_evictions.READS.items() if kind is POD},
    action=Action.WARN,
    event="DrainBlocked",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/registry/core/pod/storage/eviction.go#checkAndDecrement",
        "kubernetes/kubernetes:pkg/controller/disruption/disruption.go#getExpectedPodCount",
    ),
)
def check(budget: Object, context: Context) -> Findings:
    selector = budget.at("spec", "selector")
    judged = selector.is_map and operator_budgets.operator(budget) is None
    never = pod_evictions.never_allows(budget, context.cluster) if judged else ""
    if not never:
        return
    chosen = selectors.parse(selector.value)
    pods, unseen = gather(context.cluster.list(POD, budget.namespace or "default"))
    covered = [pod for pod in pods if chosen.matches(pod.labels) and pod_evictions.is_evicted(pod)]
    others = [pod for pod in covered if not pod_evictions.is_of_vm(pod)]
    if not others:
        if unseen:
            raise Unseen(unseen)
        return
    spec = budget["spec"]
    limit = spec["maxUnavailable"] if spec["maxUnavailable"].present else spec["minAvailable"]
    pod = others[0]
    yield Finding(
        limit.path,
        f"{never}, so {count(len(others), 'pod')} can never be evicted (such as {pod.name[:63]}) and drains hang. "
        "Add a replica, or use maxUnavailable: 1.",
    )
