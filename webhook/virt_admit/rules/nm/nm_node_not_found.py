"""A NodeMaintenance names a node that does not exist, or none.

**Why.** The operator has nothing to drain. Where the operator is installed, its own webhook rejects
such an object.

**Fix.** Write the name of the node as ``kubectl get nodes`` lists it.
"""

from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubernetes.reads import NAME
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Operation, rule, show


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads={NODE: NAME},
    operations=(Operation.CREATE,),
    action=Action.DENY,
    sources=(
        (
            "medik8s/node-maintenance-operator:api/v1beta1/"
            "nodemaintenance_webhook.go#validateNodeExists"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    node = maintenance.node(obj)
    if not node.text:
        yield Finding(
            node.path,
            "no node is set, so nothing is drained. Write the name of a node.",
            cause=Cause.REQUIRED,
        )
    elif context.cluster.get(NODE, "", node.text) is None:
        yield Finding(
            node.path,
            f"node {show(node.text)} does not exist. Write a name that kubectl get nodes lists.",
        )
