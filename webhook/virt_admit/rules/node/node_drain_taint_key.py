"""KubeVirt evacuates a node as soon as it is cordoned, or when the node lifecycle adds a taint.

**Why.** KubeVirt migrates all VMs off a node that has the taint ``nodeDrainTaintKey``. Cordoning a
node, and the node lifecycle controller, set taints of their own. With such a key each cordon, and
each short outage of a kubelet, starts migrations of all VMs of the node.

**Fix.** Remove ``nodeDrainTaintKey``. The default is ``kubevirt.io/drain``, which only an
administrator sets.
"""

from typing import Final

from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule

_CORDON: Final = "node.kubernetes.io/unschedulable"
_LIFECYCLE: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/drain/evacuation/evacuation.go#nodeHasTaint",
        (
            "kubernetes/kubernetes:pkg/controller/nodelifecycle/"
            "node_lifecycle_controller.go#taintKeyToNodeConditionMap"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    key = migration_limits.block(obj)["nodeDrainTaintKey"]
    if key.text == _CORDON:
        yield Finding(
            key.path,
            f"every cordon sets {_CORDON}, so KubeVirt migrates all VMs off a cordoned node. "
            "Remove the key; the default is kubevirt.io/drain.",
        )
    elif (key.text or "").startswith(_LIFECYCLE):
        yield Finding(
            key.path,
            "Kubernetes sets this taint itself, so a short fault of a node makes KubeVirt migrate "
            "all its VMs. Remove the key; the default is kubevirt.io/drain.",
        )
