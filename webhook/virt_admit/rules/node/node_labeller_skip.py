"""A node is taken out of KubeVirt's CPU labelling.

**Why.** The labels of the node freeze. Obsolete CPU models stay on offer there, new ones do not appear, and migrations
to the node go by old data.

**Fix.** Remove the annotation as soon as the reason for it is gone.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NODE
from virt_admit.model.kubevirt.cpu_models import SKIP_NODE
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(node: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    skip = node.annotation(SKIP_NODE)
    if skip.text == "true":
        yield Finding(
            skip.path,
            "CPU labels of this node freeze: obsolete models stay on offer, new ones do not appear; "
            "remove the annotation when done",
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
