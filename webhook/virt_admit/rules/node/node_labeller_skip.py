"""A node is excluded from KubeVirt's CPU labelling.

**Why.** KubeVirt no longer updates the labels of the node. Obsolete CPU models stay on it, new ones
are missing, and migrations to the node use outdated labels.

**Fix.** Remove the annotation as soon as its reason no longer exists.
"""

from virt_admit.model.kubevirt.instances.cpu_models import SKIP_NODE
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NODE,),
    action=Action.WARN,
    metadata=(SKIP_NODE,),
    sources=(
        "OpenShift Virtualization, Node maintenance 11.6",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go#skipNodeLabelling",
    ),
)
def check(node: Object, _context: Context) -> Findings:
    skip = node.annotation(SKIP_NODE)
    if skip.text == "true":
        yield Finding(
            skip.path,
            "KubeVirt stops updating the CPU labels of this node: obsolete models stay and new "
            "ones are missing. Remove the annotation when done.",
        )
