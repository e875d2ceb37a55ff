"""Why the Eviction API refuses to evict a pod because of its PodDisruptionBudgets.

Source: kubernetes/kubernetes:pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain.budgets import (
    evicted_pods,
    eviction_policy,
    guard_budgets,
    longhorn_budgets,
    operator_budgets,
    pod_budgets,
    role_budgets,
    unhealthy_pods,
)
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker, ForeignWait, Wait
from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, Way
from virt_admit.forecasts.drain.budgets.rook import rook_budgets
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PDB
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.problems import ProblemCause

_REMEDY_WITHOUT_SCALE: Final = "Write an integer minAvailable below the number of its pods"


def refusal(pod: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return why the Eviction API refuses to evict a pod; None if it evicts it.

    Raises:
        Unseen: an operator owns the budget, and what it does about it cannot be determined.
    """
    budgets = pod_budgets.selecting(pod, cluster)
    if len(budgets) > 1:
        return _replacing(budgets) or _several(budgets)
    return _of_budget(pod, budgets[0], cluster) if budgets else None


def _several(budgets: Sequence[Object]) -> Blocker:
    which = ", ".join(budget.name for budget in budgets[1:])
    reason = (
        f"it and {which} select the same pods, and the Eviction API refuses such pods, "
        "whatever they allow"
    )
    listed = kubectl("describe", PDB, "", budgets[0].namespace)
    words = (
        "Let one budget alone select each pod: one over all pods of these, with maxUnavailable: 1, "
        "in place of them"
    )
    remedy = typed(words, listed)
    cause = ProblemCause.SEVERAL_BUDGETS
    return Blocker.at(budgets[0], PDB, reason, remedy, now=False, cause=cause)


def _replacing(budgets: Sequence[Object]) -> Blocker | None:
    """Return that an operator replaces its budget by another one,
    during which two select the same pod.
    """
    operators = {operator_budgets.operator(budget) for budget in budgets}
    operator = next(iter(operators))
    if len(operators) > 1 or operator is None:
        return None
    reason = f"{operator.name} is replacing it by {budgets[1].name}, and both select the same pod"
    remedy = "Wait until one of them is left, or repair the operator."
    cause = ProblemCause.SEVERAL_BUDGETS
    return Blocker.at(budgets[0], PDB, reason, remedy, now=True, cause=cause)


def _of_budget(pod: Object, budget: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return why the Eviction API refuses the pod because of a budget; None if it evicts it."""
    if eviction_policy.lets_go(pod, budget):
        return None
    never = pod_budgets.never_allows(budget, cluster)
    answer = operator_budgets.judge(pod, budget, never, cluster)
    if answer is not None:
        if answer.way is Way.GOES:
            return None
        if answer.way is Way.WAITS:
            return (ForeignWait if answer.passes else Wait).at(budget, PDB, answer.reason)
        if answer.of_pods and (passing := _starting(pod, budget, cluster)) is not None:
            return passing
        return _refused(budget, unhealthy_pods.explained(answer, pod, budget, cluster), cluster)
    choice = eviction_policy.choice(pod, budget, cluster)
    if never:
        return _never(pod, budget, never, choice, cluster)
    if pod_budgets.allows(budget):
        return None
    if (passing := _starting(pod, budget, cluster)) is not None:
        return passing
    kept = eviction_policy.refusal(pod, budget, cluster)
    reason = f"it allows no disruption now, so pod {pod.name} cannot be evicted{kept}"
    remedy = f"Wait until its pods are healthy, or repair them{choice}."
    answer = OperatorAnswer(Way.NOW, reason, remedy, of_pods=True)
    return _refused(budget, unhealthy_pods.explained(answer, pod, budget, cluster, choice), cluster)


def _starting(pod: Object, budget: Object, cluster: Cluster) -> ForeignWait | None:
    """Return that a budget lets a pod go once others, which have just begun to start, are ready;
    None: that may not be all.
    """
    follows = rook_budgets.follows_pods(budget)
    starting = unhealthy_pods.starting(pod, budget, cluster, follows=follows)
    if not starting:
        return None
    reason = f"it lets pod {pod.name} go once others are ready: {starting}"
    return ForeignWait.at(budget, PDB, reason)


def _never(pod: Object, budget: Object, never: str, choice: str, cluster: Cluster) -> Blocker:
    """Return that a budget never allows a disruption, and what helps."""
    role = role_budgets.of_budget(pod, budget, cluster)
    scaled = (
        "" if pod_budgets.lacks_scale(budget) else role_budgets.advice(pod, budget, choice, cluster)
    )
    remedy = scaled or f"{_REMEDY_WITHOUT_SCALE}{choice}."
    stays = (
        f"; pod {pod.name} cannot become ready there, as its node does not report"
        if choice and evicted_pods.is_on_silent_node(pod, cluster)
        else ""
    )
    so = "so no pod can ever be evicted" if role is None else f"and {role.words}"
    reason, cause = f"{never}, {so}{stays}", ProblemCause.BUDGET
    return Blocker.at(budget, PDB, reason, remedy, now=False, cause=cause)


def _refused(budget: Object, answer: OperatorAnswer, cluster: Cluster) -> Blocker:
    now, since = answer.way is Way.NOW, pod_budgets.refuses_since(budget)
    if guard_budgets.is_guard(budget) and since == budget.created:
        since = None  # it allowed one once the control plane had been installed
    # a budget of Longhorn allows none for as long as it exists
    counts = now and not answer.awaits and not longhorn_budgets.is_instance_manager(budget)
    lasting = pod_budgets.lasting(since, cluster) if counts else ""
    reason, cause = f"{answer.reason}{lasting}", ProblemCause.BUDGET
    found = Blocker.at(budget, PDB, reason, answer.remedy, now=now, cause=cause)
    return replace(found, awaits=answer.awaits, passes=answer.passes, since=since)
