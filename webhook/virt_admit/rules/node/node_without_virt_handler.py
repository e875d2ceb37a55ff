"""A VM waits for a node to which virt-handler cannot go.

**Why.** The VM selects and tolerates the node, but the DaemonSet of virt-handler does not tolerate
a taint of the node, or demands a label that the node lacks, or its namespace does not let Pod
Security admit its pod, as on Talos, whose default is baseline. Without virt-handler the node has
neither the label ``kubevirt.io/schedulable`` nor devices, so no VM starts there. virt-handler does
not get the tolerations of VMs.

**Fix.** Let ``spec.workloads.nodePlacement`` of KubeVirt tolerate the taint; where HyperConverged
writes KubeVirt, its ``spec.workloads.nodePlacement``. Where Pod Security forbids the pod,
label its namespace ``pod-security.kubernetes.io/enforce: privileged``. virt-handler then comes by
itself.
"""

from virt_admit.forecasts.placement.refusals import unreached_nodes
from virt_admit.model.messages import advice_of, capital, command_of, ended
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=unreached_nodes.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/resource/placement/placement.go"
        "#InjectPlacementMetadata",
        "https://github.com/kubevirt/kubevirt/issues/4284",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = unreached_nodes.finding(node, context.cluster)
    if found is not None:
        reason, remedy = found
        message = f"{ended(capital(reason))} {advice_of(remedy)}"
        yield Finding(node.metadata["name"].path, message, command=command_of(remedy))
