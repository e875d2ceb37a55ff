"""What objects around VMs and pods that hold a drain report as wrong: notes of a plan,
beside its verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.upgrade.operators import standing_nodes
from virt_admit.model.evidence import reported
from virt_admit.model.evidence.reported import Read, ReportedProblem, WholeCluster, no_events
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.lookups import find
from virt_admit.model.messages import sentence
from virt_admit.model.node_updates.operators.cordons import KEEP
from virt_admit.reports import platform_objects

_MOST_NODES: Final = 5
"""For each node all objects of the cluster are gone through."""
_SENTENCE: Final = 40
"""Characters of words that tell one problem from others."""
_HELD: Final = (VmOutcome.BLOCKS, VmOutcome.UNKNOWN)


def with_reported(plan: Plan, cluster: WholeCluster, read: Read = no_events) -> Plan:
    """Return a plan with what the platform reports besides; of a few named nodes, also with what
    the objects around its held VMs and its blockers report.

    ``read`` adds events about some objects to the cluster, as in ``reported.around``.
    """
    nodes = plan.nodes
    if not plan.whole and len(nodes) <= _MOST_NODES:
        nodes = tuple(of_node(node, cluster, read) for node in nodes)
    else:
        nodes = tuple(replace(each, notes=tuple(_agreeing(each, cluster))) for each in nodes)
    told = {text for node in nodes for text in said(node)} | {*plan.held, *plan.unsure}
    platform = platform_objects.reporting(cluster, told)
    others = (each for each in platform if not any(_quotes(text, each) for text in told))
    return replace(plan, nodes=nodes, reported=tuple(islice(others, reported.MOST)))


def _quotes(text: str, problem: ReportedProblem) -> bool:
    """Return whether what holds a drain is told with all the words of objects of a kind."""
    words = problem.text
    return len(words) >= _SENTENCE and f"{problem.kind}s report" in text and words in text


def of_node(node: NodePlan, cluster: WholeCluster, read: Read = no_events) -> NodePlan:
    """Return the plan of a node with what the objects around its held VMs and its blockers report.

    As above.

    Those around the node itself count where it is cordoned or not Ready, such as its Machine. Of a
    node at rest that can be drained, what has lasted is said.
    """
    fine = bool(node.drainable and not node.state)
    itself = [obj for obj in cluster.known(NODE) if obj.name == node.name]
    start = itself if fine or node.state else []
    start += [row.vmi for row in node.forecasts if row.outcome in _HELD]
    blockers = {(each.kind, each.namespace, each.name) for each in node.pods.blockers}
    start += [
        obj for obj in cluster if blockers and (obj.kind, obj.namespace, obj.name) in blockers
    ]
    found = reported.around(start, cluster, tuple(said(node)), read, lasting=fine) if start else ()
    notes = (_note(each, node.name, cluster) for each in found)
    return replace(node, notes=(*_agreeing(node, cluster), *notes))


def _agreeing(node: NodePlan, cluster: WholeCluster) -> Iterator[str]:
    """Yield the notes about a node, and with its cordon the cause for which the upgrade that set it
    stands, as ``upgrade`` tells it: an uncordon by hand may be what lets it go on.
    """
    asked = any(KEEP in note for note in node.notes)
    orders = standing_nodes.standing(cluster) if asked else ()
    found = next((each for each in orders if each.node == node.name and each.certain), None)
    for note in node.notes:
        if found is None or KEEP not in note:
            yield note
            continue
        undone = found.remedy.startswith(f"Uncordon {node.name} ")
        told = f"{sentence(found.brief)} {sentence(found.remedy)}"
        yield note.replace(KEEP, told if undone else f"{KEEP} {told}", 1)


def _note(found: ReportedProblem, node: str, cluster: WholeCluster) -> str:
    """Return what an object reports, with its node if that is a pod of another one."""
    pod = find(cluster, POD, found.namespace, found.name) if found.kind == POD.kind else None
    on = pod.at("spec", "nodeName").text if pod is not None and not found.also else None
    said = str(found)
    return said.replace(" reports: ", f" on {on} reports: ", 1) if on not in (None, node) else said


def said(node: NodePlan) -> Iterator[str]:
    """Yield the texts about a node.

    What its pods cannot be placed for stands with the nodes that refuse them.
    """
    for row in (*node.forecasts, *node.visitors):
        failure = row.state.failure
        yield from (row.reason, row.remedy, failure.text if failure is not None else "")
        yield from row.placement.refusals.values()
    for blocker in node.pods.blockers:
        yield from (blocker.reason, blocker.remedy)
    yield from node.notes
