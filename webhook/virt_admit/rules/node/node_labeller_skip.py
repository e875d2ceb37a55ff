"""A node is excluded from KubeVirt's CPU labelling.

**Why.** KubeVirt no longer updates the labels of the node. Obsolete CPU models stay on it, new ones are missing, and
migrations to the node use outdated labels.

**Fix.** Remove the annotation as soon as its reason no longer exists.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.cpu_models import SKIP_NODE
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(node: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    skip = node.annotation(SKIP_NODE)
    if skip.text == "true":
        yield Finding(
            skip.path,
            "KubeVirt stops updating the CPU labels of this node: obsolete models stay and new ones are missing. "
            "Remove the annotation when done.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NODE,),
    action=Action.WARN,
    metadata=(SKIP_NODE,),
    check=check,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.6",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go#skipNodeLabelling",
    ),
)
