"""A node reports again, but the taint of its fencing is still set.

**Why.** No VM can start or migrate there, and a taint with the effect NoExecute ends every pod of
the node. It is meant for a node that is powered off. Self Node Remediation removes it when the old
pods and VolumeAttachments of the node are gone, Fence Agents Remediation when its object is
deleted. A taint that an administrator set stays until it is removed. Nothing is wrong while the
``healthyDelay`` of a NodeHealthCheck keeps the remediation; a negative one keeps it until an
administrator confirms the node.

**Fix.** See why the remediation has not finished: pods of the node with a finalizer,
VolumeAttachments that stay as a pod that tolerates the taint uses the volume, or a remediation
object that keeps its finalizer. Its remediator then removes the taint. One that an administrator
set has to be removed by hand, with all its effects.
"""

from virt_admit.model.commands import shell
from virt_admit.model.messages import cut, ended, sentence
from virt_admit.model.remediation import fence_taints
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=fence_taints.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="FenceTaintLeft",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/controller/podgc/gc_controller.go#gcTerminating",
        (
            "medik8s/self-node-remediation:internal/controller/"
            "selfnoderemediation_controller.go#isResourceDeletionCompleted"
        ),
        (
            "medik8s/node-healthcheck-operator:internal/controller/resources/"
            "manager.go#calcCrDeletionDelay"
        ),
        (
            "medik8s/fence-agents-remediation:controllers/"
            "fenceagentsremediation_controller.go#handleFARDeletion"
        ),
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = fence_taints.left(node, context.cluster)
    if found is None:
        return
    if unread := tuple(fence_taints.unread(node, context.cluster)):
        yield from unread  # a NodeHealthCheck may keep the remediation for a while
        return
    begin = f"it has reported for {found.age}, but its taint {found.key} still {found.effect}."
    see = f"See virt-admit explain node/{node.name}."
    waits = fence_taints.waits_for(node.name, context.cluster)
    held = fence_taints.unconfirmed(node, context.cluster)
    if held is not None:
        end = f"{held[0]}."
    elif waits:
        most = check.room(found.taint.path) - len(f"{begin} Its remediator waits for . {see}")
        short = waits.partition(" (claim ")[0] if len(waits) > most else waits
        end = f"Its remediator waits for {ended(cut(short, most))}"
    elif fence_taints.is_by_hand(node.name, context.cluster):
        end, command = fence_taints.way_out(node.name, found, context.cluster)
        yield Finding(found.taint.path, f"{begin} {sentence(end)}", node.name, command=command)
        return
    else:
        end = "Finish its remediation, then remove the taint."
    command = held[1] if held else shell("virt-admit", "explain", f"node/{node.name}")
    yield Finding(found.taint.path, f"{begin} {end} {see}", value=node.name, command=command)
