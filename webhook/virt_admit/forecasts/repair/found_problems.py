"""The problems that keep nodes from being drained: one for each cause at its root object,
however many VMs show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain import migration_doubts
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.repair.repair_plan import ObjectRef, RootProblem, Witness
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    HCO,
    KUBEVIRT,
    NODE,
    PDB,
    RESOURCE_QUOTA,
    VM,
    VMI,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migratability, node_local_volumes, vmis, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import grouped
from virt_admit.model.problems import Problem, ProblemCause, ProblemId

NOWHERE: Final = {
    ProblemCause.NO_OTHER_NODE,
    ProblemCause.NO_NODE_READY,
    ProblemCause.NO_ROOM,
    ProblemCause.NO_TARGET,
    ProblemCause.HOST_MODEL,
    ProblemCause.CLAIM_BROKEN,
}
"""Causes of a VM that no other node takes."""
FAILING: Final = {
    ProblemCause.MIGRATION_FAILS,
    ProblemCause.TARGETS_INCOMPATIBLE,
    ProblemCause.TIMES_OUT,
    ProblemCause.BLOCKED,
}
"""Causes of a VM whose migrations do not end well."""
POOL: Final = {
    ProblemCause.POOL_PAUSED,
    ProblemCause.POOL_DEGRADED,
    ProblemCause.POOL_NODES,
    ProblemCause.POOL_INVALID,
}
"""Causes of pools that an upgrade does not reach."""
NOT_SHARED: Final = "ClaimNotShared"
"""The cause of a VM whose claim says ReadWriteMany although its data may be on one node. Drain
cannot determine it.
"""
_OF_VM: Final[Mapping[str, str]] = {
    ProblemCause.EXTERNAL: "vm-eviction-external-unattended",
    ProblemCause.MOVER_IDLE: "vmi-evacuation-stuck",
    ProblemCause.NO_TARGET: "vm-single-candidate-node",
}
"""The rule that shows a problem; others show only in drain."""
_BLOCKER_KINDS: Final[Mapping[str, Kind]] = {
    kind.kind: kind for kind in reversed(kinds.ALL) if kind.group in kinds.BUILT_IN_GROUPS
}


def of_plan(plan: Plan, cluster: Cluster) -> tuple[RootProblem, ...]:
    """Return what keeps the nodes of a drain plan from being drained, each problem once, by id."""
    return merged(found for node in plan.nodes for found in of_node(node, cluster))


def merged(problems: Iterable[RootProblem]) -> tuple[RootProblem, ...]:
    """Return each problem once with all nodes, VMs and objects that show it, by id."""
    by_id = grouped(problems, lambda problem: problem.id)
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
    blocking = node.having(VmOutcome.BLOCKS)
    general = {blocker.id for blocker in node.pods.blockers}
    told = {blocker.reason for blocker in node.pods.blockers}  # alike for each VM of the node
    for row in blocking:
        for problem in (each for each in row.problems if each.reason not in told):
            yield _of_row(row, problem, node.name, cluster, alone=problem.id not in general)
    for row in node.having(VmOutcome.UNKNOWN):
        claim = _not_shared(row, cluster)
        if claim:
            reason = f"claim {claim} is a hostPath volume: other nodes may not have its data"
            yield of_vm(NOT_SHARED, row.vmi, node.name, reason)
        elif (doubt := _doubt(row, cluster)) is not None and doubt.cause in _DOUBTS:
            found = of_vm(str(doubt.cause), row.vmi, node.name, doubt.reason, doubt.remedy)
            # one limit is raised for all VMs
            yield replace(found, vms=()) if doubt.cause == ProblemCause.TIMES_OUT else found
    if node.moving.fits is False and not any(row.placement.certain == () for row in blocking):
        left = ", ".join(sorted(pod.full_name for pod in node.moving.left)[:3])
        subject = ObjectRef(NODE, "", node.name)
        yield RootProblem(
            str(ProblemCause.NO_ROOM), subject, (node.name,), f"no room at the same time for {left}"
        )


def of_vm(cause: str, vmi: Object, node: str, reason: str, remedy: str = "") -> RootProblem:
    """Return a problem of one VM, which its VMI shows."""
    own = vmi_subject(vmi)
    return RootProblem(cause, root(vmi), (node,), reason, (Witness("", own),), (own,), remedy)


def _of_blocker(blocker: Blocker, node: str) -> RootProblem:
    kind = _BLOCKER_KINDS.get(blocker.kind) or kinds.guess("v1", blocker.kind)
    subject = ObjectRef(kind, blocker.namespace, blocker.name)
    return of_object(blocker.cause, subject, (node,), blocker.reason, blocker.remedy)


def of_object(
    cause: str, subject: ObjectRef, nodes: tuple[str, ...], reason: str, remedy: str
) -> RootProblem:
    """Return a problem of an object, which shows it itself."""
    return RootProblem(str(cause), subject, nodes, reason, (Witness("", subject),), remedy=remedy)


def _of_row(
    row: Forecast, problem: Problem, node: str, cluster: Cluster, *, alone: bool
) -> RootProblem:
    """Return a problem that keeps a VM. ``alone``: it is not one of the whole node."""
    own = vmi_subject(row.vmi)
    subject = _subject(problem, row.vmi, cluster)
    rule = _OF_VM.get(
        problem.cause, "" if problem.cause in set(ProblemCause) else "vmi-not-migratable"
    )
    shown = (Witness(rule, own), *((Witness("", subject),) if subject != own else ()))
    cause = problem.id.cause if problem.id is not None else problem.cause
    return RootProblem(
        str(cause), subject, (node,), problem.reason, shown, (own,) if alone else (), problem.remedy
    )


def _subject(problem: Problem, vmi: Object, cluster: Cluster) -> ObjectRef:
    """Return the root object that the id of a problem names."""
    vm = root(vmi)
    found = problem.id
    if found is None or (
        (found.namespace, found.name) == (vm.namespace, vm.name) and found.cause not in _SHARED
    ):
        return vm
    kind = _SHARED.get(found.cause, NODE if not found.namespace else VM)
    if kind is KUBEVIRT and any(
        (hco.namespace, hco.name) == found[1:] for hco in cluster.known(HCO)
    ):
        kind = HCO
    if kind is RESOURCE_QUOTA and _is_unknown(found, cluster):
        return vm
    return ObjectRef(kind, found.namespace, found.name)


_SHARED: Final[Mapping[str, Kind]] = {
    ProblemCause.BUDGET: PDB,
    ProblemCause.QUOTA: RESOURCE_QUOTA,
    ProblemCause.NO_MIGRATION: KUBEVIRT,
}
"""The kind of the root object of problems that many VMs show."""


_DOUBTS: Final = (ProblemCause.TIMES_OUT, ProblemCause.NO_TARGET, ProblemCause.MIGRATION_FAILS)
"""The causes of doubts about a migration that a change ends."""


def _is_unknown(found: ProblemId, cluster: Cluster) -> bool:
    return all(quota.name != found.name for quota in cluster.known(RESOURCE_QUOTA, found.namespace))


def _not_shared(row: Forecast, cluster: Cluster) -> str:
    """Return the claim that counts as shared although its data may be on one node; empty: none."""
    spec = row.vmi["spec"]
    claims = launcher_pod.all_claims(spec)
    try:
        return node_local_volumes.host_path_claim(vms.namespace_of(row.vmi), claims, cluster)
    except Unseen:
        return ""


def _doubt(row: Forecast, cluster: Cluster) -> Problem | None:
    """Return why the migration of a VM may fail, where objects do not decide it."""
    try:
        return migration_doubts.doubt(row.vmi, row.target, cluster)
    except Unseen:
        return None


def root(vmi: Object) -> ObjectRef:
    """Return the VM of a VMI, else the VMI itself."""
    own = vmi_subject(vmi)
    name = vmis.owner(vmi, VM.kind)
    return ObjectRef(VM, own.namespace, name) if name else own


def vmi_subject(vmi: Object) -> ObjectRef:
    return ObjectRef(VMI, vms.namespace_of(vmi), vmi.name)


def causes(vmi: Object, cluster: Cluster) -> list[tuple[str, str]]:
    """Return every reason why a VMI cannot migrate with its words: those found,
    and the one that KubeVirt published.
    """
    found: dict[str, list[str]] = {}
    for reason in migratability.assess(vmi, cluster).reasons:
        found.setdefault(reason.name, []).append(reason.what)
    published = vmi.condition("LiveMigratable")["reason"].text
    if published and published not in found:
        found[published] = [vmi.condition("LiveMigratable")["message"].text or "KubeVirt says so"]
    return [(name, ", ".join(dict.fromkeys(words))) for name, words in found.items()]


def limits_owner(cluster: Cluster) -> ObjectRef:
    """Return the object that has the settings of KubeVirt: HyperConverged where it exists."""
    for kind, read in ((HCO, configuration.hyperconverged), (KUBEVIRT, configuration.kubevirt)):
        found = configuration.known_or_none(read, cluster)
        if found is not None:
            return ObjectRef.of(kind, found)
    return ObjectRef(KUBEVIRT, "kubevirt", "kubevirt")
