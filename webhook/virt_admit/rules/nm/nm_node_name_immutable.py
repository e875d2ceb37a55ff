"""An update changes the node of a NodeMaintenance.

**Why.** The operator would drain the new node and leave the old one cordoned.

**Fix.** Create a second NodeMaintenance for the other node. Delete this one when its node is done.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Operation, rule, show


@rule(
    kinds=(NM, NM_KUBEVIRT),
    operations=(Operation.UPDATE,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                "oldObject != null && self.?spec.?nodeName.orValue(null) != "
                "oldObject.?spec.?nodeName.orValue(null)"
            ),
            path="'spec.nodeName'",
            message=(
                "'changing the node would leave the old node cordoned. Create a second "
                "NodeMaintenance.'"
            ),
        ),
    ),
    sources=(
        "medik8s/node-maintenance-operator:api/v1beta1/nodemaintenance_webhook.go#ValidateUpdate",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if context.old is None:
        return
    new, old = maintenance.node(obj), maintenance.node(context.old)
    if new.value != old.value:
        yield Finding(
            new.path,
            f"changing node {show(old.value)} to {show(new.value)} would leave the old node "
            "cordoned. Create a second NodeMaintenance.",
            cause=Cause.FORBIDDEN,
        )
