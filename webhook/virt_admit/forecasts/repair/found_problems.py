"""The problems that keep nodes from being drained: one for each cause at its root object, however many VMs show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.pod_evictions import Blocker
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import migration_demand, no_target, quotas
from virt_admit.forecasts.repair.repair_plan import ObjectRef, RootProblem, Witness
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE, PDB, POD, RESOURCE_QUOTA, VM, VMI, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import disruption_budgets, migratability, vmis, vms
from virt_admit.model.kubevirt.launcher import limit_ranges
from virt_admit.model.kubevirt.settings import configuration, parallel_migrations

# Causes besides the reasons of KubeVirt's condition LiveMigratable
NOT_REPORTED: Final = "MigratabilityNotReported"
EXTERNAL: Final = "ExternalEvictionStrategy"
BUDGET: Final = "BudgetForbidsEviction"
SEVERAL_BUDGETS: Final = "SeveralBudgets"
NO_MIGRATION: Final = "MigrationLimitZero"
FAILING: Final = "MigrationFails"
QUOTA: Final = "QuotaExceeded"
LIMITS: Final = "LimitRangeExceeded"
NO_TARGET: Final = "NoTargetNode"
STALE_MARK: Final = "EvacuationMarkLeft"
STUCK: Final = "StopOverdue"
OLD_POD: Final = "PodNotEnding"
QUEUE: Final = "MigrationQueued"
HOST_MODEL: Final = "HostModelUnavailable"
CLAIM: Final = "ClaimNotMountable"
NO_ROOM: Final = "NoRoom"
NODE_SILENT: Final = "NodeNotReporting"
POD_STAYS: Final = "PodNotEnding"
CONTROL: Final = "ComponentUnavailable"
POOL: Final = "PoolPaused"

NOWHERE: Final = frozenset((NO_TARGET, HOST_MODEL, CLAIM, NO_ROOM))
"""Causes of a VM that no other node takes."""

_BLOCKER_KINDS: Final[Mapping[str, Kind]] = {
    kind.kind: kind for kind in reversed(kinds.ALL) if kind.group in kinds.BUILT_IN_GROUPS
}
_BY_STATE: Final = {
    State.STALE_MARK: STALE_MARK,
    State.TWO_PODS: OLD_POD,
    State.QUEUED: QUEUE,
    State.MARKED: QUEUE,
}


def of_plan(plan: Plan, cluster: Cluster) -> tuple[RootProblem, ...]:
    """Return what keeps the nodes of a drain plan from being drained, each problem once, by id."""
    return merged(found for node in plan.nodes for found in of_node(node, cluster))


def merged(problems: Iterable[RootProblem]) -> tuple[RootProblem, ...]:
    """Return each problem once with all nodes, VMs and objects that show it, by id."""
    by_id: dict[str, list[RootProblem]] = {}
    for problem in problems:
        by_id.setdefault(problem.id, []).append(problem)
    return tuple(_joined(some) for _, some in sorted(by_id.items()))


def _joined(some: list[RootProblem]) -> RootProblem:
    first = min(some, key=lambda problem: (problem.nodes, problem.reason))
    return RootProblem(
        first.cause,
        first.subject,
        tuple(sorted({name for problem in some for name in problem.nodes})),
        first.reason,
        tuple(dict.fromkeys(witness for problem in some for witness in problem.shown_by)),
        tuple(sorted({vm for problem in some for vm in problem.vms}, key=lambda vm: vm.full_name)),
        first.remedy,
    )


def of_node(node: NodePlan, cluster: Cluster) -> Iterator[RootProblem]:
    """Yield what keeps one node from being drained."""
    for blocker in node.pods.blockers:
        yield _of_blocker(blocker, node.name)
    general = {blocker.reason for blocker in node.pods.blockers}
    silent = any(blocker.kind == NODE.kind for blocker in node.pods.blockers)
    blocking = node.having(VmOutcome.BLOCKS)
    for row in blocking:
        if not silent and row.reason not in general:
            yield from of_vm(row, cluster)
    if node.moving.fits is False and not any(row.placement.certain == () for row in blocking):
        left = ", ".join(sorted(pod.full_name for pod in node.moving.left)[:3])
        yield RootProblem(NO_ROOM, ObjectRef(NODE, "", node.name), (node.name,), f"no room at the same time for {left}")


def _of_blocker(blocker: Blocker, node: str) -> RootProblem:
    kind = _BLOCKER_KINDS.get(blocker.kind) or kinds.guess("v1", blocker.kind)
    subject = ObjectRef(kind, blocker.namespace, blocker.name)
    cause = {PDB: BUDGET, NODE: NODE_SILENT, POD: POD_STAYS}.get(kind, CONTROL)
    remedy = "" if kind is PDB else blocker.remedy
    return RootProblem(cause, subject, (node,), blocker.reason, (Witness("", subject),), remedy=remedy)


# --- one VM --------------------------------------------------------------------------------------------------------


def of_vm(row: Forecast, cluster: Cluster) -> Iterator[RootProblem]:
    """Yield why a VM keeps its node from being drained, each cause."""
    vmi = row.vmi
    if vmi.deleted or row.state.state in (State.ENDED, State.GONE):
        yield _problem(STUCK, vmi, row.reason)
        return
    try:
        found = vmi_evictions.reaction(vmi, cluster)
    except Unseen:
        yield _problem(NOT_REPORTED, vmi, row.reason)
        return
    match found.effect:
        case Effect.REFUSED:
            yield from _refused(row, cluster)
        case Effect.EXTERNAL:
            yield _problem(EXTERNAL, vmi, found.reason, rule="vm-eviction-external-unattended")
        case Effect.BUDGET:
            yield from _budgets(vmi, found.reason, cluster)
        case Effect.NO_MIGRATION:
            yield _of_root(NO_MIGRATION, limits_owner(cluster), vmi, found.reason)
        case _:
            yield from _not_moving(row, cluster)


def _refused(row: Forecast, cluster: Cluster) -> Iterator[RootProblem]:
    vmi = row.vmi
    if vmis.migratable(vmi) is None:
        yield _problem(NOT_REPORTED, vmi, row.reason)
        return
    for name, what in causes(vmi, cluster):
        yield _problem(name, vmi, what, rule="vmi-not-migratable")


def causes(vmi: Object, cluster: Cluster) -> list[tuple[str, str]]:
    """Return every reason why a VMI cannot migrate with its words: those found, and the one that KubeVirt published."""
    found: dict[str, list[str]] = {}
    for reason in migratability.assess(vmi, cluster).reasons:
        found.setdefault(reason.name, []).append(reason.what)
    published = vmi.condition("LiveMigratable")["reason"].text
    if published and published not in found:
        found[published] = [vmi.condition("LiveMigratable")["message"].text or "KubeVirt says so"]
    return [(name, ", ".join(dict.fromkeys(words))) for name, words in found.items()]


def _not_moving(row: Forecast, cluster: Cluster) -> Iterator[RootProblem]:
    """Yield why a VMI that KubeVirt wants to migrate stays."""
    vmi = row.vmi
    found = False
    if row.state.attempts and "migrations" in row.reason and row.placement.certain != ():
        yield _problem(FAILING, vmi, row.reason)
        found = True
    if no_target.reason(row.target, cluster, moves=True) is not None and not row.state.placed:
        yield _problem(_without_target(row), vmi, row.reason, rule="vm-single-candidate-node")
        found = True
    refusing = () if row.state.placed else tuple(_refusing(vmi, cluster))
    yield from refusing
    if not found and not refusing:
        yield _problem(_BY_STATE.get(row.state.state, FAILING), vmi, row.reason)


def _without_target(row: Forecast) -> str:
    """Return the cause for a VM that no other node takes."""
    causes = [cause for why in row.placement.refusals.values() for cause in why.split("; ")]
    if any(cause.startswith("claim ") and "allows one pod" not in cause for cause in causes):
        return CLAIM
    if causes and all(cause.endswith("missing") for cause in causes):
        return NO_ROOM
    return HOST_MODEL if any(cause.startswith("host model ") for cause in causes) else NO_TARGET


def _refusing(vmi: Object, cluster: Cluster) -> Iterator[RootProblem]:
    """Yield the quotas and LimitRanges that refuse what a migration creates."""
    try:
        refused = quotas.refusal(vmi, cluster)
    except Unseen:
        return
    if refused is None:
        return
    namespace = vms.namespace_of(vmi)
    demand = migration_demand.demand(vmi, cluster)
    for quota in cluster.known(RESOURCE_QUOTA, namespace):
        lacking = quotas.missing(quota, demand)
        if lacking:
            words = ", ".join(f"{name}: {lack}" for name, lack in lacking)
            yield _of_root(QUOTA, ObjectRef.of(RESOURCE_QUOTA, quota), vmi, words)
    for found in limit_ranges.of_namespace(cluster, namespace):
        for pod in (demand.launcher, demand.attachment):
            fault = limit_ranges.refusal(pod, [found]) if pod is not None else ""
            if fault:
                yield _problem(LIMITS, vmi, fault)
                break


def _budgets(vmi: Object, reason: str, cluster: Cluster) -> Iterator[RootProblem]:
    found = disruption_budgets.covering(vmi, cluster)
    if len(found) > 1:
        yield _problem(SEVERAL_BUDGETS, vmi, reason)
        return
    for budget in found:
        yield _of_root(BUDGET, ObjectRef.of(PDB, budget), vmi, reason)


def limits_owner(cluster: Cluster) -> ObjectRef:
    """Return the object in which the settings of KubeVirt are written: HyperConverged where it exists."""
    for kind, read in ((HCO, configuration.hyperconverged), (KUBEVIRT, configuration.kubevirt)):
        found = configuration.known_or_none(read, cluster)
        if found is not None:
            return ObjectRef.of(kind, found)
    return ObjectRef(KUBEVIRT, "kubevirt", "kubevirt")


def no_migration_starts(cluster: Cluster) -> bool:
    """Return whether a limit below 1 keeps every migration from starting."""
    try:
        return parallel_migrations.none_starts(cluster) is not None
    except Unseen:
        return False


def vmi_subject(vmi: Object) -> ObjectRef:
    return ObjectRef(VMI, vms.namespace_of(vmi), vmi.name)


def _problem(cause: str, vmi: Object, reason: str, rule: str = "") -> RootProblem:
    """Return a problem of one VM. Its root object is the VirtualMachine where one owns it."""
    own = vmi_subject(vmi)
    name = vmis.owner(vmi, VM.kind)
    root = ObjectRef(VM, own.namespace, name) if name else own
    shown = (Witness(rule, own), *((Witness("", root),) if root != own else ()))
    return RootProblem(cause, root, (vmi.at("status", "nodeName").text or "",), reason, shown, (own,))


def _of_root(cause: str, root: ObjectRef, vmi: Object, reason: str) -> RootProblem:
    own = vmi_subject(vmi)
    shown = (Witness("", root), Witness("", own))
    return RootProblem(cause, root, (vmi.at("status", "nodeName").text or "",), reason, shown, (own,))
