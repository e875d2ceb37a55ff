"""A fence of the storage network that was set for another node cuts this node off.

**Why.** Before 1.20, Rook fences a node with the taint out-of-service by the address of what has a
volume of that node open. If its operator was away when the taint was set, the volume may be open on
the next node by then, and Rook fences that one. Guests there get errors of their disks, and no
volume of that storage can be mapped there (error 108). The node that was lost is not fenced at all.

**Fix.** Make sure that the lost node is off. Then set ``spec.fenceState`` of the NetworkFence to
``Unfenced``, see that ``ceph osd blocklist ls`` does not name the address any more, and start the
guests of the node again. Keep the NetworkFence as long as the lost node has its taint: Rook sets no
other one meanwhile. Rook 1.20 and later sets no fence by itself. With these, give a lost node the
taint only once it is off for certain.
"""

from virt_admit.model.evidence import network_fences
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, NETWORK_FENCE, NODE
from virt_admit.model.messages import advice_of, command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=network_fences.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "https://github.com/rook/rook/issues/14832",
        "rook/rook:pkg/operator/ceph/cluster/watcher.go#fenceRbdImage",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = list(network_fences.wrong(node, "", context.cluster))
    if not found and any(True for _ in context.cluster.known(CEPH_CLUSTER)):
        yield from more_may_exist(context.cluster, NETWORK_FENCE)
    path = node.at("status", "addresses").path
    for fence in found:
        told = f"{fence.words(node.name)}."
        short = f"{told} {advice_of(fence.lifted)}"
        yield Finding(
            path,
            check.first_that_fits(path, f"{told} {advice_of(fence.remedy)}", short),
            value=fence.fence.name,
            command=command_of(fence.remedy),
        )
