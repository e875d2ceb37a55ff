"""A node has two NodeMaintenance objects.

**Why.** Deleting either NodeMaintenance of a node uncordons it, even while the other one still
exists. The operators of ``nodemaintenance.medik8s.io`` and of the older
``nodemaintenance.kubevirt.io`` revert each other's changes, and the webhook of each sees only its
own API group.

**Fix.** Use the existing one, or wait until it is deleted.
"""

from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Operation, rule


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads={NM: (), NM_KUBEVIRT: ()},
    operations=(Operation.CREATE,),
    action=Action.DENY,
    sources=(
        (
            "medik8s/node-maintenance-operator:api/v1beta1/"
            "nodemaintenance_webhook.go#validateNoNodeMaintenanceExists"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    node = maintenance.node(obj)
    if not node.text:
        return
    for other in maintenance.others(obj, context.cluster):
        if isinstance(other, Unseen):
            yield other
        elif maintenance.node(other).text == node.text:
            state = ", which is being deleted" if other.deleted else ""
            remedy = "Wait until it is gone" if other.deleted else "Use that one"
            yield Finding(
                node.path,
                f"node {node.text} already has NodeMaintenance {other.name} "
                f"({other.group}){state}; deleting either one uncordons the node. {remedy}.",
                cause=Cause.DUPLICATE,
            )
