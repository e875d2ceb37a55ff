"""A node is Ready, but the controller that initializes new nodes has not removed its taint.

**Why.** No pod can go to the node: no virt-handler starts there, and no VM can migrate to it. It
looks as if it had joined. Another node that is added gets the same taint. Pods that tolerate it
would run without the labels and the provider ID of the node, so the taint must not be tolerated.

**Fix.** Repair the controller, mostly the cloud controller manager: its log says what it lacks,
often its credentials or the address of the cloud. It then removes the taint itself.
"""

from virt_admit.forecasts.placement.components import node_initializers
from virt_admit.model.messages import advice_of, capital, command_of
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=node_initializers.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="NodeUninitialized",
    at_admission=False,
    sources=(
        "kubernetes/cloud-provider:controllers/node/node_controller.go#syncNode",
        "kubernetes-sigs/cluster-api:api/core/v1beta2/common_types.go#NodeUninitializedTaint",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = node_initializers.of_node(node, context.cluster)
    if found is None or found.since is None or found.since < node_initializers.PATIENCE:
        return
    if not node.is_true("Ready"):
        return  # node-not-reporting, or its kubelet, is what to repair first
    path = node.at("spec", "taints").path
    message = f"{capital(found.reason)}, so it takes no VM. {advice_of(found.remedy)}"
    yield Finding(path, message, value=found.key, command=command_of(found.remedy))
