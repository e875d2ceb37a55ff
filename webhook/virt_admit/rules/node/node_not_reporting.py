"""A node does not report: its condition Ready is Unknown, or its last heartbeat is old.

**Why.** Its VMs may still run, but they cannot migrate, and no pod of the node is seen to end. A
drain that evicts one never completes, and its VMs start on no other node until the node is fenced
or reports again.

**Fix.** Repair the node, or fence it: make sure that it has no power, then let its health check or
the taint ``node.kubernetes.io/out-of-service`` tell Kubernetes so. Wait first if an update reboots
it, or a health check remediates it or is about to. A node without VMs that is rebooted on purpose,
by its update or by hand after a cordon, is not named for 20 minutes. Where its kubelet waits for a
certificate, the node runs: approve its CertificateSigningRequest. If these requests are of
``localhost``, or of the long name of the node, the host has a wrong name: set it, restart its
kubelet, and approve none of them. A node whose Machine does not exist any more is left over: make
sure that its host is off, and delete the Node.
"""

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.remediation import (
    awaited_return,
    exclusions,
    failed_remediations,
    hand_reboots,
)
from virt_admit.model import certificate_requests
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Unseen, gather
from virt_admit.model.kubernetes.kinds import NODE, VMI
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import advice_of, capital, command_of, count, names
from virt_admit.model.node_updates.operators import orphaned_nodes
from virt_admit.model.node_updates.operators.orphaned_nodes import OrphanedNode
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(NODE,),
    reads=union(
        vmis.READS,
        node_health.READS,
        awaited_return.READS,
        exclusions.RELEASE_READS,
        volume_attachments.READS,
        {VMI: ("metadata.name",)},
    ),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    event="NodeNotReporting",
    at_admission=False,
    sources=(
        (
            "kubernetes/kubernetes:pkg/controller/nodelifecycle/"
            "node_lifecycle_controller.go#tryUpdateNodeHealth"
        ),
        "kubevirt/kubevirt:docs/nodes/node-recovery.md",
        "https://github.com/kubernetes-sigs/cluster-api/issues/14024",
    ),
)
def check(node: Object, context: Context) -> Findings:
    silence = node_health.silence(node, context.cluster)
    if not silence:
        return
    found, unseen = gather(vmis.on_node(context.cluster, node.name))
    if (orphan := orphaned_nodes.of_node(node.name, context.cluster)) is not None:
        yield _left_over(orphan, node, silence, [vmi.full_name for vmi in found])
        if unseen:
            yield Unseen(unseen)
        return
    if not found and not unseen and awaited_return.is_planned(node.name, context.cluster):
        return  # it is rebooted on purpose, and nothing of KubeVirt is there
    if not found and (unread := hand_reboots.unread(node, context.cluster)):
        yield Unseen(unread)
        return
    number = count(len(found), "VM")
    named = f"{number} ({names((vmi.full_name for vmi in found), 120)})"
    pending = certificate_requests.of_node(node.name, context.cluster)
    advice = (
        (pending.advice if pending.alias else f"it runs: {pending.advice}")
        if pending is not None
        else awaited_return.advice(node.name, context.cluster, awaited_return.repair(node))
    )
    waits = bool(awaited_return.awaited(node.name, context.cluster)) or advice.startswith("wait ")
    drains = "" if waits else ", and a drain never completes"
    subjects = ("its VMs",) if unseen else (named, number) if found else ("",)
    effects = [
        f"{vms} {_MIGRATES}{drains}" if vms else "no pod of it is seen to end" for vms in subjects
    ]
    if not found and (
        left := next(volume_attachments.left_in_use(node.name, context.cluster), None)
    ):
        effects = [left.words(node.name)]
    if not found and not unseen and awaited_return.fenced(node.name, context.cluster):
        effects = ["it was fenced"]
    path, begin = node.condition("Ready")["status"].path, f"this node does not report ({silence})"
    if over := awaited_return.overdue(node.name, context.cluster):
        begin = f"this node has not reported for {duration(over.lasts)}; {over.words}"
    if pending is not None and pending.alias:
        effects = [f"it {pending.reason}"]
    brief = advice.partition("; ")[0]
    ways = [(what, way) for way in (advice, brief) for what in effects]
    failed = failed_remediations.of_any(node.name, context.cluster)
    if failed is not None and failed.remedy == advice:
        stay = (each.replace(_MIGRATES, f"{_MIGRATES} or restart") for each in effects)
        shown = (words for each in stay for words in (each, each.removesuffix(drains)))
        because = [f"{what}. {capital(failed.reason)}" for what in shown]
        ways[:0] = [(what, way) for what in because for way in (advice, brief)]
    yield Finding(
        path,
        check.first_that_fits(path, *(f"{begin}: {what}. {advice_of(way)}" for what, way in ways)),
        value=node.name,
        problem=problem_of(ProblemCause.NODE_SILENT, node),
        command=command_of(advice) or (pending.command if pending is not None else ""),
    )
    if unseen:
        yield Unseen(unseen)


_MIGRATES: Final = "cannot migrate"


def _left_over(left: OrphanedNode, node: Object, silence: str, guests: Sequence[str]) -> Finding:
    """Return that a node does not come back, because its Machine is gone."""
    path, begin = node.condition("Ready")["status"].path, "this node does not report"
    given_up = f"Cluster API gave its deletion up ({left.failed}). " if left.failed else ""
    later = f" {capital(left.limit)}." if left.limit else ""
    there = f", with {count(len(guests), 'VM')} ({names(guests, 80)})" if guests else ""
    why = f"{left.why}{there}"
    ways = (
        f"{begin} ({silence}): {why}. {given_up}{left.brief}{later}",
        f"{begin} ({silence}): {why}. {given_up}{left.brief}",
        f"{begin}: {why}. {left.brief}",
        f"{begin}: its Machine does not exist any more. {left.brief}",
    )
    return Finding(
        path,
        check.first_that_fits(path, *ways),
        value=node.name,
        problem=problem_of(ProblemCause.NODE_SILENT, node),
        command=command_of(left.remedy),
    )
