"""A controller has cordoned a node for an update, a maintenance or its removal,
and does not uncordon it by itself.

**Why.** No VM can start there or migrate there, and drains of other nodes lack its room. The
upgrade of a driver has failed, the eviction of a VM is refused, a maintenance has failed, the Plan
of an upgrade was deleted or its pod cannot start, or a cluster autoscaler that restarted has
forgotten the node that it was to delete. The node itself looks healthy.

**Fix.** End what the controller waits for: ``virt-admit explain node/NAME`` names it with a
command. Uncordon it by hand only where the report says so: most controllers cordon the node again.
"""

from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates import cordoners
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, cut, rule


@rule(
    kinds=(NODE,),
    reads=cordoners.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="NodeCordonStays",
    at_admission=False,
    sources=(
        "NVIDIA/k8s-operator-libs:pkg/upgrade/consts.go",
        "k8snetworkplumbingwg/sriov-network-operator:pkg/drain/drainer.go#DrainNode",
        "rancher/system-upgrade-controller:pkg/upgrade/handle_batch.go#handleJobs",
        "kubernetes/autoscaler:cluster-autoscaler/utils/taints/taints.go#AddTaints",
        (
            "medik8s/node-maintenance-operator:internal/controller/"
            "nodemaintenance_controller.go#Reconcile"
        ),
    ),
)
def check(node: Object, context: Context) -> Findings:
    cordon = cordoners.of_node(node, context.cluster)
    if (
        cordon is None
        or not (cordon.ends is False or cordon.failed)
        or not (cordon.waits and cordon.remedy)
    ):
        return  # a maintenance that waits for nothing lasts as long as its administrator wants
    cordoned = node.at("spec", "unschedulable")
    taints = node.at("spec", "taints")
    by_taint = next((e for e in taints.items() if f"taint {e['key'].text}" == cordon.mark), taints)
    path = (by_taint if by_taint.present and not cordoned.boolean else cordoned).path
    stays = (
        f"{cordon.closed}, and this {'does' if cordon.ends is False else 'may'} not end by itself."
    )
    advice = advice_of(cordon.remedy)
    waits = cut(cordon.waits, check.room(path) - len(f"{stays}  {advice}"))
    yield Finding(
        path, f"{stays} {waits} {advice}", value=node.name, command=command_of(cordon.remedy)
    )
