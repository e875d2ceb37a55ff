"""A Node has been in deletion for long: finalizers keep it, and nothing removes them.

**Why.** The node takes no VM and is not to come back, but its DaemonSet pods count as not ready, so
that KubeVirt and updates wait for them. Karpenter does not evict a pod with the annotation
``karpenter.sh/do-not-disrupt``, and waits without end where no terminationGracePeriod is set. It
also waits for each VolumeAttachment with the name of the node, even one that an earlier instance of
that name left. RKE2 left a finalizer on nodes whose controller no longer runs.

**Fix.** Let the VMs leave the node, then end what the finding names. Remove a finalizer by hand
only if neither a guest nor another pod with data runs there: the pods of a Node that is gone are
deleted by force.
"""

from virt_admit.model.messages import advice_of, command_of, cut
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=node_removals.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="DeletionHeld",
    at_admission=False,
    of_deleted=True,
    sources=(
        "kubernetes-sigs/karpenter:pkg/utils/pod/scheduling.go#IsEvictable",
        "kubernetes-sigs/karpenter:pkg/controllers/node/termination/controller.go"
        "#awaitVolumeDetachment",
        "rancher/rke2:pkg/controllers/cisnetworkpolicy/cleanup.go",
        "kubernetes/kubernetes:pkg/controller/podgc/gc_controller.go#gcOrphaned",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = node_removals.of_node(node, context.cluster) if node.deleted else None
    if found is None or not found.remedy:
        return
    path, advice = node.metadata["finalizers"].path, advice_of(found.remedy)
    begin = f"this node is {found.state}, kept by {found.mark}."
    waits = cut(found.waits, max(40, check.room(path) - len(f"{begin}  {advice}")))
    yield Finding(
        path, " ".join((begin, waits, advice)), value=node.name, command=command_of(found.remedy)
    )
