"""A PodDisruptionBudget of pods that are not VMs can never allow an eviction.

**Why.** The Eviction API refuses every pod of the budget, whatever its health. The drain of each
node with such a pod never completes, and an upgrade stops there.

**Fix.** Run so many pods that one may go, or write ``maxUnavailable: 1``. A share is rounded up: 80
% lets one of five pods go, and none of four. If it selects only the pod with a role, such as a
primary, let another pod take the role over.

A budget that no cluster has counted pods for yet, as in a file, is compared with the replicas that
Deployments, StatefulSets and ReplicaSets of its namespace name. Where an autoscaler sets them, only
the form of the budget counts.

Budgets that an operator writes, such as those of Longhorn and Rook, are judged by ``virt-admit
drain``, which says whether the operator makes way. Only one that certainly has not, for a node
whose drain began long ago and has removed all else, while all pods were healthy, is reported here.
A cordon alone shows no drain. Change it in the object of the operator, which reverts a change of
the budget.
"""

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.budgets import (
    evicted_pods,
    eviction_policy,
    operator_budgets,
    operator_eviction,
    pod_budgets,
    pod_counts,
    role_budgets,
)
from virt_admit.forecasts.drain.budgets.operator_eviction import Way
from virt_admit.model.kubernetes import clock, selectors, workloads
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import PDB, POD, VM
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.kubernetes.workloads import Workload
from virt_admit.model.kubevirt.instances import disruption_budgets
from virt_admit.model.messages import advice_of, command_of, count, names
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Path, Urgency, rule


@rule(
    kinds=(PDB,),
    reads=union(
        {POD: pod_evictions.READS[POD], VM: ("spec.template.metadata.labels",)},
        workloads.READS,
        role_budgets.READS,
        clock.READS,
        operator_eviction.READS,
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="DrainBlocked",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/registry/core/pod/storage/eviction.go#checkAndDecrement",
        "kubernetes/kubernetes:pkg/controller/disruption/disruption.go#getExpectedPodCount",
    ),
)
def check(budget: Object, context: Context) -> Findings:
    selector = budget.at("spec", "selector")
    operator = operator_budgets.operator(budget)
    if not selector.is_map or (operator and not operator_budgets.is_unknown(budget)):
        return
    chosen, namespace = selectors.parse(selector.value), budget.namespace or "default"
    counted = budget.at("status", "expectedPods").present
    planned = (
        () if counted or operator else tuple(workloads.selected(chosen, namespace, context.cluster))
    )
    if planned:
        yield from _judge_planned(budget, chosen, planned, context.cluster)
        return
    never = pod_budgets.never_allows(budget, context.cluster)
    if not never:
        return
    pods, unseen = gather(context.cluster.list(POD, namespace))
    covered = [pod for pod in pods if chosen.matches(pod.labels) and evicted_pods.is_evicted(pod)]
    others = [pod for pod in covered if not evicted_pods.is_of_vm(pod)]
    if not others:
        if unseen:
            raise Unseen(unseen)
        return
    if operator:
        yield from _judge_owned(budget, others[0], never, context.cluster)
        return
    pod, path = others[0], _limit(budget)
    begin = (
        f"{never}, so {count(len(others), 'pod')} can never be evicted (such as {pod.name[:63]}) "
        "and drains hang. "
    )
    remedy = role_budgets.remedy(pod, budget, context.cluster)
    choices = []
    if any(each for each in others if eviction_policy.choice(each, budget, context.cluster)):
        choices.append(f"{begin}{remedy}, or unhealthyPodEvictionPolicy: AlwaysAllow.")
    yield Finding(
        path,
        check.first_that_fits(path, *choices, f"{begin}{remedy}."),
        problem=problem_of(ProblemCause.BUDGET, budget),
        command="" if choices else role_budgets.command(pod, budget, context.cluster),
    )


def _judge_owned(budget: Object, pod: Object, never: str, cluster: Cluster) -> Findings:
    """Judge a budget that an operator writes, by what it has done about drains: what it does about
    one pod, it does about all.
    """
    try:
        answer = operator_budgets.judge(pod, budget, never, cluster)
    except Unseen:  # it may make way: a drain says so
        return
    if answer is not None and answer.way is Way.NEVER:
        path, begin = _limit(budget), f"{answer.reason}. {advice_of(answer.remedy)}"
        yield Finding(
            path,
            check.first_that_fits(path, begin, f"{answer.reason}."),
            problem=problem_of(ProblemCause.BUDGET, budget),
            command=command_of(answer.remedy),
        )


def _judge_planned(
    budget: Object, selector: Selector, planned: tuple[Workload, ...], cluster: Cluster
) -> Findings:
    """Judge a budget by the replicas that are written."""
    never = pod_budgets.refuses_all(budget, _replicas(budget, selector, planned, cluster))
    if never:
        yield Finding(
            _limit(budget),
            f"{never}, so no pod of {names(list(map(str, planned)), 100)} can ever be evicted and "
            f"drains hang. {pod_counts.remedy(budget, None)}.",
            problem=problem_of(ProblemCause.BUDGET, budget),
        )


def _replicas(
    budget: Object, selector: Selector, planned: tuple[Workload, ...], cluster: Cluster
) -> int:
    """Return how many pods the budget will count on; 0: not known,
    because others may have such pods too.
    """
    written = [workload.replicas for workload in planned]
    everything = not budget.at("spec", "selector").map
    of_vms = any(
        selector.matches(disruption_budgets.launcher_labels(vm))
        for vm in cluster.known(VM, budget.namespace or "default")
    )
    return 0 if everything or of_vms or None in written else sum(filter(None, written))


def _limit(budget: Object) -> Path:
    spec = budget["spec"]
    return (spec["maxUnavailable"] if spec["maxUnavailable"].present else spec["minAvailable"]).path
