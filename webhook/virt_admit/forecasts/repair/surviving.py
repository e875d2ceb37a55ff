"""What keeps a cluster from surviving the loss of any one node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.outage import lost_vms
from virt_admit.forecasts.outage.lost_vms import NOT_BACK, LostVm
from virt_admit.forecasts.outage.outages import Outage, Outages, Question, outages
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.repair import found_problems
from virt_admit.forecasts.repair.repair_plan import ObjectRef, RootProblem
from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.problems import ProblemCause

NO_HEALTH_CHECK: Final = "NoHealthCheckActs"
"""The cause of a node after whose loss nothing frees its VMs."""
WAITS_FOR_NODE: Final = "WaitsForItsNode"
"""The cause of a VM that no other node can run after the loss of its own."""
LOST: Final = "LostWithItsNode"
"""The cause of a VM that nothing starts again."""
NO_CHANGE_OF_VM: Final = frozenset((LOST, lost_vms.DISK))
"""The causes that no change of the VM ends."""
QUORUM: Final = "QuorumLost"
TWICE: Final = "MayRunTwice"
"""The cause of a node that is not rebooted where it is cut off, although its pods are freed."""


def survival(cluster: Cluster) -> tuple[Outages, dict[str, bool | None], tuple[RootProblem, ...]]:
    """Return the answer, whether each node's loss is survived, and what keeps it from being."""
    found = outages(Question(worst=1), cluster)
    nodes: dict[str, bool | None] = dict.fromkeys(
        (node.name for node in gather(cluster.list(NODE))[0]), True
    )
    nodes |= {each.nodes[0]: each.survives for each in found.outages if each.nodes}
    problems = (
        problem for each in found.outages if each.survives is False for problem in _of_outage(each)
    )
    return found, nodes, found_problems.merged(problems)


def _of_outage(outage: Outage) -> Iterator[RootProblem]:
    node = ObjectRef(NODE, "", outage.nodes[0])
    if outage.quorum.kept is False:
        yield _of_node(
            QUORUM, node, "too few control-plane nodes are left", "run three control-plane nodes"
        )
    if outage.room.fits is False:
        yield _of_node(
            str(ProblemCause.NO_ROOM), node, outage.room.because, "add a node, or free room"
        )
    if twice := [row for row in outage.vms if row.twice]:
        yield _of_node(TWICE, node, twice[0].twice, twice[0].remedy)
    never = outage.having(LossOutcome.NEVER)
    if never:
        remedy = never[0].remedy or "let a health check watch the node"
        yield _of_node(never[0].cause or NO_HEALTH_CHECK, node, never[0].reason, remedy)
    for row in outage.having(*NOT_BACK):
        if row.outcome is LossOutcome.NODE:
            yield _of_vm(row.cause or WAITS_FOR_NODE, row)
        elif row.outcome is LossOutcome.LOST:
            yield _of_vm(LOST, row)
        elif row.outcome is LossOutcome.ROOM and outage.room.fits is not False:
            yield _of_node(str(ProblemCause.NO_ROOM), node, row.reason, row.remedy)
    for disk, lost in outage.stranded:
        if lost.certain:
            why, way = lost.reason, lost.remedy
            yield found_problems.of_vm(lost_vms.DISK, disk.vmi, node.name, why, way)


def _of_node(cause: str, node: ObjectRef, reason: str, remedy: str) -> RootProblem:
    return found_problems.of_object(cause, node, (node.name,), reason, remedy)


def _of_vm(cause: str, row: LostVm) -> RootProblem:
    return found_problems.of_vm(cause, row.vmi, row.node, row.reason, row.remedy)
