"""Repairs of objects of many VMs: quotas, LimitRanges, migration limits, budgets, pools."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from virt_admit.forecasts.drain.budgets import mutual_drains
from virt_admit.forecasts.placement import candidates, quotas
from virt_admit.forecasts.repair import controllers, found_problems, queries, surviving
from virt_admit.forecasts.repair.causes import budgets, health_checks
from virt_admit.forecasts.repair.disk_sizes import quantity
from virt_admit.forecasts.repair.repair_plan import (
    REMOVED,
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
from virt_admit.model import machine_pools
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    HCO,
    LIMIT_RANGE,
    MACHINE_CONFIG_POOL,
    MACHINE_DEPLOYMENT,
    MIGRATION_POLICY,
    NODE,
    RESOURCE_QUOTA,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_timeouts
from virt_admit.model.kubevirt.launcher import limit_ranges, lost_surcharges
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.kubevirt.settings.migration_limits import PER_CLUSTER, PER_NODE
from virt_admit.model.node_updates import cordoners, maintenance_updates, sriov_drains
from virt_admit.model.problems import ProblemCause
from virt_admit.model.scheduler.pod_size import PodSize
from virt_admit.model.scheduler.resources import CPU, amount


def step(problem: RootProblem, cluster: Cluster) -> RepairStep | str:
    """Return the step that repairs a problem of a shared object, or why there is none."""
    repair = _REPAIRS.get(problem.cause)
    if repair is None:
        return problem.remedy or "no change of an object ends it"
    try:
        return repair(problem, cluster)
    except Unseen as unseen:
        return f"{unseen.what} cannot be read"


def _object(subject: ObjectRef, cluster: Cluster) -> Object:
    """Return an object of a plan.

    Raises:
        Unseen: it cannot be read, or does not exist any more.
    """
    found = cluster.get(*subject)
    if found is None:
        raise Unseen(str(subject))
    return found


def _settings(
    problem: RootProblem,
    stage: PlanStage,
    title: str,
    edits: Iterable[FieldEdit],
    risk: str,
    verify: PlannedCheck,
) -> RepairStep:
    """Return a step that costs nothing and takes effect at once."""
    return RepairStep(
        id=f"{problem.cause}:{problem.subject.full_name}",
        stage=stage,
        title=title,
        subject=problem.subject,
        changes=(ObjectChange(problem.subject, Command.PATCH, tuple(edits)),),
        verify=(verify,),
        risk=risk,
    )


# --- quotas and LimitRanges -----------------------------------------------------------------------


def _quota(problem: RootProblem, cluster: Cluster) -> RepairStep | str:
    """Raise a quota by what the largest VM lacks, so that they migrate one after another."""
    # the refusal is reported, and no known quota explains it
    if problem.subject.kind is not RESOURCE_QUOTA:
        return _UNEXPLAINED
    quota = _object(problem.subject, cluster)
    if quota_writers.is_of_rancher(quota):
        return _in_rancher(problem, quota, cluster)
    most: dict[str, int] = {}
    for vm in problem.vms:
        vmi = cluster.get(VMI, vm.namespace, vm.name)
        if vmi is None:
            continue
        for name, lack in quotas.lacks_for(quota, vmi, cluster).items():
            if lack is None:
                return f"it demands {name} of each container, which launcher pods do not set"
            most[name] = max(most.get(name, 0), lack)
    hard = quotas.hard_limits(quota)
    edits = [
        FieldEdit(("spec", "hard", name), exact(name, hard[name] + lack))
        for name, lack in sorted(most.items())
    ]
    raised = ", ".join(f"{edit.path[-1]} to {edit.value}" for edit in edits)
    risk = "the quota is part of the contract with the tenant; its VMs migrate one after another"
    check = queries.in_force(problem.subject, edits)
    return _settings(problem, PlanStage.QUOTAS, f"raise {raised}", edits, risk, check)


def _in_rancher(problem: RootProblem, quota: Object, cluster: Cluster) -> str:
    """Return how a quota gets room that Rancher writes."""
    for vm in problem.vms:
        vmi = cluster.get(VMI, vm.namespace, vm.name)
        lost = lost_surcharges.of(vmi, quota, cluster) if vmi is not None else None
        if lost is not None:
            return lost.remedy
    return quota_writers.raising(quota.name, quota.namespace, quota)[0]


_UNEXPLAINED: Final = (
    "no ResourceQuota that was read refuses its second pod now. KubeVirt tries again when a quota "
    "changes: look for a ClusterResourceQuota, and at the log of virt-controller"
)


def exact(name: str, value: int) -> str:
    """Return an amount of a quota as an exact quantity."""
    resource = name.removeprefix("requests.").removeprefix("limits.")
    if resource == CPU:
        return f"{value}m" if value % 1000 else str(value // 1000)
    return quantity(value)


def _limit_range(problem: RootProblem, cluster: Cluster) -> RepairStep | str:
    """Raise the maxima, defaults and ratios of a LimitRange that refuses a second launcher pod."""
    for vm in problem.vms:
        vmi = cluster.get(VMI, vm.namespace, vm.name)
        for found in limit_ranges.of_namespace(cluster, vm.namespace) if vmi is not None else ():
            edits = _raised(found, candidates.new_pod(vmi, cluster)) if vmi is not None else []
            if edits:
                owner = replace(problem, subject=ObjectRef.of(LIMIT_RANGE, found))
                check = queries.check("the new limits are written", owner.subject, edits)
                risk = "larger pods may be made in this namespace"
                return _settings(owner, PlanStage.QUOTAS, "raise its limits", edits, risk, check)
    return "its minimum or a missing request refuses the pod: its owner decides"


def _raised(found: Object, size: PodSize) -> list[FieldEdit]:
    before = found.at("spec", "limits").value
    limits = copy.deepcopy(before) if isinstance(before, list) else []
    for item in limits:
        _raise(item, limit_ranges.defaulted(size, [found]))
    return [
        FieldEdit(("spec", "limits", index), item)
        for index, item in enumerate(limits)
        if item != before[index]
    ]


def _raise(item: Any, size: PodSize) -> None:
    """Raise what an item of a LimitRange allows to what a pod needs."""
    if not isinstance(item, dict):
        return
    for each in (size,) if item.get("type") == "Pod" else size.every:
        requests, given = each.requests, each.limits
        for resource, most in dict(item.get("max") or {}).items():
            needed = max(requests.get(resource, 0), given.get(resource, 0))
            if needed > amount(resource, most):
                item["max"] = {**item["max"], resource: exact(resource, needed)}
        for resource, default in dict(item.get("default") or {}).items():
            if requests.get(resource, 0) > amount(resource, default):
                item["default"] = {**item["default"], resource: exact(resource, requests[resource])}
        for resource, ratio in dict(item.get("maxLimitRequestRatio") or {}).items():
            asked, limit = requests.get(resource, 0), given.get(resource, 0)
            if asked and limit * 1000 > amount(CPU, ratio) * asked:
                raised = {**item["maxLimitRequestRatio"], resource: str(math.ceil(limit / asked))}
                item["maxLimitRequestRatio"] = raised


# --- limits of migrations -------------------------------------------------------------------------


def _migration_limits(problem: RootProblem, cluster: Cluster) -> RepairStep | str:
    """Let migrations start: KubeVirt's own limits where one is below 1."""
    in_force = migration_limits.block(_object(problem.subject, cluster))
    subject = found_problems.limits_owner(cluster)
    owner = _object(subject, cluster)
    path = migration_limits.block(owner).path
    defaults = {PER_CLUSTER: 5, PER_NODE: 1 if subject.kind is HCO else 2}
    edits = [
        FieldEdit((*path, key), value)
        for key, value in defaults.items()
        if (limit := in_force[key].integer) is not None and limit < 1
    ]
    if not edits:
        return "another object sets its limits"
    words = ", ".join(f"{edit.path[-1]} to {edit.value}" for edit in edits)
    check = queries.check("the limits are above 0", subject, edits)
    about = replace(problem, subject=subject)
    risk = "migrations use the network of the nodes"
    return _settings(about, PlanStage.SETTINGS, f"set {words}", edits, risk, check)


def _more_time(problem: RootProblem, cluster: Cluster) -> RepairStep | str:
    """Let a migration run as long as its bandwidth demands, and half as long again."""
    vmi = cluster.get(VMI, problem.subject.namespace, problem.subject.name)
    bandwidth = cluster.cached(_lowest_bandwidth)
    if vmi is None or not bandwidth:
        return problem.remedy
    policy = migration_timeouts.policy(vmi, cluster)
    if policy is not None and policy["spec"][migration_limits.COMPLETION_TIMEOUT].present:
        return (
            f"MigrationPolicy {policy.name} limits its migrations: raise completionTimeoutPerGiB "
            "there"
        )
    subject = found_problems.limits_owner(cluster)
    owner = _object(subject, cluster)
    field = migration_limits.block(owner)[migration_limits.COMPLETION_TIMEOUT]
    seconds = math.ceil(migration_timeouts.GB * 3 / 2 / max(bandwidth, migration_timeouts.SLOWEST))
    edits = [FieldEdit(tuple(field.path), seconds)]
    check = queries.check("the limit is raised", subject, edits)
    title = f"set {migration_limits.COMPLETION_TIMEOUT} to {seconds}, as the bandwidth demands"
    risk = (
        "migrations that never end are cancelled later; more bandwidthPerMigration would end them "
        "sooner"
    )
    return _settings(
        replace(problem, subject=subject), PlanStage.SETTINGS, title, edits, risk, check
    )


def _lowest_bandwidth(cluster: Cluster) -> float:
    """Return the lowest limit of a migration in bytes per second; 0: there is none."""
    found = (migration_timeouts.settings(vmi, vmi["-"], cluster) for vmi in cluster.known(VMI))
    return min(
        (limits.bandwidth for limits in found if limits is not None and limits.bandwidth),
        default=0.0,
    )


def without_post_copy(vmi: Object, cluster: Cluster) -> RepairStep:
    """Return the step after which a VM never switches to post-copy, for which the kernels of the
    nodes lack a permission.

    Raises:
        Unseen: the settings of KubeVirt cannot be read.
    """
    policy = migration_timeouts.policy(vmi, cluster)
    if policy is not None and migration_limits.post_copy(policy):
        subject, owner = ObjectRef.of(MIGRATION_POLICY, policy), policy
    else:
        subject = found_problems.limits_owner(cluster)
        owner = _object(subject, cluster)
    edit = FieldEdit((*migration_limits.block(owner).path, migration_limits.POST_COPY), False)
    sysctl = "set the sysctl vm.unprivileged_userfaultfd=1 on all nodes"
    return RepairStep(
        id=f"post-copy:{subject.full_name}",
        stage=PlanStage.SETTINGS,
        title=f"set {migration_limits.POST_COPY} to false, as the nodes forbid userfaultfd",
        subject=subject,
        changes=(ObjectChange(subject, Command.PATCH, (edit,)),),
        verify=(queries.check("the setting is written", subject, [edit]),),
        risk="migrations that do not end in time are cancelled and repeated",
        alternatives=(OtherWay(sysctl, CostClass.DECISION, "it changes the kernel of every node"),),
    )


# --- pools ----------------------------------------------------------------------------------------


def _unpause(problem: RootProblem, cluster: Cluster) -> RepairStep | str:
    """Unpause a pool, the last step of all: the roll-out starts at once.

    Another operator resumes what it paused.
    """
    pool = _object(problem.subject, cluster)
    if sriov_drains.has_paused(pool, _members(pool, cluster)):
        return problem.remedy
    if not pool.at("spec", "paused").boolean:
        return _uncordoned(pool, cluster) or problem.remedy
    subject = problem.subject
    query = (*queries.get(subject), "-o=jsonpath={.spec.paused}")
    return RepairStep(
        id=f"unpause:{subject.full_name}",
        stage=PlanStage.ROLLOUT,
        title="unpause the pool, after everything else",
        subject=subject,
        cost=StepCost(CostClass.DECISION),
        changes=(ObjectChange(subject, Command.PATCH, (FieldEdit(("spec", "paused"), False),)),),
        verify=(PlannedCheck("the pool is not paused", query, "false"),),
        risk="the roll-out starts at once",
    )


def _uncordoned(pool: Object, cluster: Cluster) -> RepairStep | None:
    """Return the step that uncordons a node of a pool:
    the operator updates no pool while one of its nodes is away.
    """
    degraded = pool.is_true("Degraded")
    if degraded or kinds.of(pool) is not MACHINE_CONFIG_POOL:
        return None
    for node in sorted(_members(pool, cluster), key=lambda found: found.name):
        ready = node.is_true("Ready")
        if ready and node.at("spec", "unschedulable").boolean:
            return uncordon(node) if may_uncordon(node, cluster) else None
    return None


def _members(pool: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the nodes of a MachineConfigPool."""
    pools = machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE))
    return next((own for each, own in pools if each.full_name == pool.full_name), ())


POOL_KINDS: Final = (MACHINE_CONFIG_POOL, MACHINE_DEPLOYMENT)

_REPAIRS: Final[Mapping[str, Callable[[RootProblem, Cluster], RepairStep | str]]] = {
    ProblemCause.QUOTA: _quota,
    ProblemCause.LIMIT_RANGE: _limit_range,
    ProblemCause.NO_MIGRATION: _migration_limits,
    ProblemCause.TIMES_OUT: _more_time,
    ProblemCause.BUDGET: budgets.step,
    **dict.fromkeys(found_problems.POOL, _unpause),
    surviving.NO_HEALTH_CHECK: health_checks.step,
}


def may_uncordon(node: Object, cluster: Cluster) -> bool:
    """Return whether an uncordon by hand is a way: not while what cordoned the node goes on, unless
    its drain and another one hold each other, or ``uncordon`` ends it.
    """
    cordon, mutual = cordoners.of_node(node, cluster), mutual_drains.of_node(node.name, cluster)
    if mutual is not None:
        return mutual.frees == node.name
    return cordon is None or cordon.uncordon or cordon.by == maintenance_updates.cordoner(node)


def uncordon(node: Object) -> RepairStep:
    """Return the step that lets VMs onto a node again:
    Harvester's maintenance mode would cordon it again.
    """
    subject = ObjectRef.of(NODE, node)
    kept = [
        key
        for key in (maintenance_updates.REQUESTED, maintenance_updates.STATUS)
        if key in node.annotations
    ]
    cordon = "node.kubernetes.io/unschedulable"
    spec = controllers.tainted(node, lambda taint: taint["key"].text != cordon, "unschedulable")
    left = {
        key: value for key, value in node.metadata["annotations"].map.items() if key not in kept
    }
    metadata = {**node.metadata.map, "annotations": left}
    freed = Object({**node.data, "metadata": metadata, "spec": spec})
    removed = (*(("metadata", "annotations", key) for key in kept), ("spec", "unschedulable"))
    edits = tuple(FieldEdit(path, REMOVED) for path in removed)
    query = ("get", "node", node.name, "-o=jsonpath={.spec.unschedulable}")
    return RepairStep(
        id=f"uncordon:{subject.full_name}",
        stage=PlanStage.ROOM,
        title="end the maintenance mode of the node" if kept else "uncordon the node",
        subject=subject,
        cost=StepCost(CostClass.DECISION),
        changes=(ObjectChange(subject, Command.PATCH, edits),),
        verify=(PlannedCheck("the node accepts pods", query),),
        risk="it was cordoned for a reason: ask who did it",
        predicted=(freed,),
    )
