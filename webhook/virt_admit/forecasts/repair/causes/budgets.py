"""Repairs of budgets that allow no eviction: more pods,
or a policy that lets pods go which are not ready.

A budget that an operator writes is left to it: it would take the change back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.budgets import (
    evicted_pods,
    eviction_policy,
    pod_budgets,
    pod_counts,
    role_budgets,
)
from virt_admit.forecasts.drain.budgets.pod_counts import PodOwner
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.forecasts.repair import controllers, queries
from virt_admit.forecasts.repair.changed_cluster import ChangedCluster
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    CostClass,
    FieldEdit,
    ObjectChange,
    ObjectRef,
    OtherWay,
    PlannedCheck,
    PlanStage,
    RepairStep,
    RootProblem,
    StepCost,
)
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, POD, STATEFUL_SET
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count
from virt_admit.model.scheduler import pods

_MOST: Final = 10
"""Pods that a plan adds at most for one budget."""
_LASTING: Final = timedelta(hours=1)
"""A pod that is not ready for so long does not become ready by itself."""


def step(problem: RootProblem, cluster: Cluster) -> RepairStep | str:
    """Return the step after which a budget lets the pods of the nodes go, or why there is none."""
    budget = cluster.get(problem.subject.kind, problem.subject.namespace, problem.subject.name)
    if budget is None or eviction_policy.is_owned(budget):
        return problem.remedy or "its owner decides"
    every = pod_budgets.selected(budget, cluster.known(POD, budget.namespace))
    selected = sorted((pod for pod in every if not pod.deleted), key=lambda pod: pod.name)
    here = [
        pod
        for pod in selected
        if pod.at("spec", "nodeName").text in problem.nodes and _is_asked(pod)
    ]
    unready = [pod for pod in here if eviction_policy.is_unready(pod)]
    if unready:
        return _policy(problem, here, cluster)
    if not pod_budgets.never_allows(budget, cluster):
        return problem.remedy or "wait until its pods are healthy, or repair them"
    return _more_pods(problem, budget, selected, cluster)


def _is_asked(pod: Object) -> bool:
    """Return whether the budget is asked before an eviction of a pod (eviction.go#canIgnorePDB)."""
    return evicted_pods.is_evicted(pod) and pod.at("status", "phase").text != "Pending"


# --- pods that are not ready ----------------------------------------------------------------------


def _policy(problem: RootProblem, here: Sequence[Object], cluster: Cluster) -> RepairStep | str:
    """Let pods go that are not ready and do not become so, if that empties the nodes."""
    well = [pod.name for pod in here if not eviction_policy.is_unready(pod)]
    passing = [pod.name for pod in here if not _is_broken(pod, cluster)]
    if well or passing or not eviction_policy.may_exist(cluster):
        return problem.remedy or "wait until its pods are healthy, or repair them"
    edit = FieldEdit(("spec", eviction_policy.FIELD), eviction_policy.ALWAYS)
    subject = problem.subject
    return RepairStep(
        id=f"evict-unready:{subject.full_name}",
        stage=PlanStage.QUOTAS,
        title=(
            f"set {eviction_policy.FIELD} {eviction_policy.ALWAYS}, or repair "
            f"{', '.join(pod.name for pod in here[:3])}"
        ),
        subject=subject,
        cost=StepCost(CostClass.DECISION),
        changes=(ObjectChange(subject, Command.PATCH, (edit,)),),
        verify=(queries.check("the policy is written", subject, [edit]),),
        risk=(
            "pods that are not ready are evicted although too few others are healthy: ask the "
            "owner whether one of them holds data or is only slow to start"
        ),
    )


def _is_broken(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod stays not ready, as far as its containers and its age say so."""
    if pod_starts.fault(pod, cluster) is not None:
        return True
    since = pod.condition("Ready")["lastTransitionTime"].text
    return eviction_policy.is_unready(pod) and clock.has_lasted(since, _LASTING, cluster)


# --- more pods ------------------------------------------------------------------------------------


def _more_pods(
    problem: RootProblem, budget: Object, selected: Sequence[Object], cluster: Cluster
) -> RepairStep | str:
    """Run as many pods as the budget needs to let one go."""
    expected = budget.at("status", "expectedPods").integer or len(selected)
    number = pod_budgets.enough(budget)
    more = number - expected
    found = pod_counts.owner(selected[0], cluster) if selected else None
    role = role_budgets.of_budget(selected[0], budget, cluster) if selected else None
    if not number or more < 1 or found is None or role is not None:
        return problem.remedy or "its owner decides"
    if more > _MOST:
        return f"it would take {more} pods more. {problem.remedy}"
    target = _scaled(found, more)
    if target is None:
        return problem.remedy or f"{found} sets the number of its pods: its owner runs {number}"
    bound = list(_placed(selected[0], found.name, more, cluster))
    if len(bound) < more:
        return f"no node has room for {more} pods more. {problem.remedy}"
    changed = controllers.counted_budget(budget, expected, more)
    query = (*queries.get(problem.subject), "-o=jsonpath={.status.disruptionsAllowed}")
    return RepairStep(
        id=f"replicas:{target[0].subject.full_name}",
        stage=PlanStage.QUOTAS,
        title=target[1],
        subject=target[0].subject,
        cost=StepCost(CostClass.NOTHING, pods=more),
        changes=(target[0],),
        verify=(
            PlannedCheck(
                "the budget allows an eviction",
                query,
                str(changed.at("status", "disruptionsAllowed").integer),
            ),
        ),
        risk="one pod more needs room all the time"
        if more == 1
        else f"{more} pods more need room all the time",
        alternatives=(_other_policy(problem.subject),),
        predicted=(*bound, changed),
    )


def _other_policy(budget: ObjectRef) -> OtherWay:
    """Return what its owner may decide: one pod, even the only one, is away during an eviction."""
    why = "its pods may be down while one is evicted, which their owner decides"
    return OtherWay(
        f"{pod_counts.ONE_AT_A_TIME} in {budget}", CostClass.DECISION, why, decision=True
    )


def _scaled(found: PodOwner, more: int) -> tuple[ObjectChange, str] | None:
    """Return the change after which so many pods more run, and its title; None: another decides."""
    kind = kinds.of(found.obj) if found.obj is not None else None
    if found.obj is None or kind not in (DEPLOYMENT, STATEFUL_SET):
        return None
    said = found.obj.at("spec", "replicas").integer
    replicas = 1 if said is None else said
    if found.scaler is None:
        edit = FieldEdit(("spec", "replicas"), replicas + more)
        change = ObjectChange(ObjectRef.of(kind, found.obj), Command.PATCH, (edit,))
        return change, f"run {replicas + more} replicas instead of {replicas}"
    least, most = found.limits
    limit = found.scaler.at("spec", most).integer
    if kinds.of(found.scaler) is not AUTOSCALER or (limit is not None and limit < replicas + more):
        return None
    edit = FieldEdit(("spec", least), replicas + more)
    change = ObjectChange(ObjectRef.of(AUTOSCALER, found.scaler), Command.PATCH, (edit,))
    return change, f"set {least} to {replicas + more}: {found} has {count(replicas, 'pod')}"


def _placed(pod: Object, name: str, number: int, cluster: Cluster) -> Iterator[Object]:
    """Yield pods like one, each on a node that has room after those before it."""
    bound: list[Object] = []
    for index in range(1, number + 1):
        more = controllers.one_more_pod(pod, f"{name}-more-{index}")
        placement = candidates.scheduler(ChangedCluster(cluster, bound)).place(
            pods.read(more), without="", gone=()
        )
        if not placement.candidates:
            return
        spec = {**more["spec"].map, "nodeName": placement.candidates[0]}
        bound.append(Object({**more.data, "spec": spec}, more.namespace))
        yield bound[-1]
