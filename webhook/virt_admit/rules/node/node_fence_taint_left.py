"""A node reports again, but the taint of its fencing is still set.

**Why.** The taint has the effect NoExecute: it ends every pod of the node, and no VM can start or migrate there. It is
meant for a node that is powered off. A remediator removes it when the old pods and VolumeAttachments of the node are
gone; a taint that an administrator set stays until it is removed.

**Fix.** See why the remediation has not finished: pods of the node with a finalizer, VolumeAttachments that stay, or a
remediation object that keeps its finalizer. Then remove the taint.
"""

import datetime

from virt_admit.model.kubernetes import clock
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule, union

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
REMEDIATORS = "medik8s.io/"
"""Start of the taints of Self Node Remediation and Fence Agents Remediation."""
SETTLED = datetime.timedelta(minutes=10)
"""A remediator removes its taint soon after the node is back."""


@rule(
    kinds=(NODE,),
    reads=union(
        clock.READS,
        {
            NODE: (
                "spec.taints",
                "status.conditions.type",
                "status.conditions.status",
                "status.conditions.lastTransitionTime",
            )
        },
    ),
    action=Action.WARN,
    event="FenceTaintLeft",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/controller/podgc/gc_controller.go#gcTerminating",
        "medik8s/self-node-remediation:internal/controller/selfnoderemediation_controller.go#removeOutOfServiceTaint",
    ),
)
def check(node: Object, context: Context) -> Findings:
    ready = node.condition("Ready")
    back = clock.since(ready["lastTransitionTime"].text, context.cluster)
    if ready["status"].text != "True" or back is None or back < SETTLED:
        return
    for taint in node.at("spec", "taints").items():
        key = taint["key"].text or ""
        if taint["effect"].text == "NoExecute" and (key == OUT_OF_SERVICE or key.startswith(REMEDIATORS)):
            yield Finding(
                taint.path,
                f"this node reports since {int(back.total_seconds() // 60)} minutes, but its taint {key} still ends every "
                "pod there, and no VM can run on it. Finish its remediation, then remove the taint.",
                value=node.name,
            )
            return
