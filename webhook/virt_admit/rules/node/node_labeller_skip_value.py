"""The annotation that excludes a node from CPU labelling has a value other than "true".

**Why.** The labeller checks only whether the annotation exists. With ``"false"`` or an empty value it still skips the
node, although the value was meant to enable labelling.

**Fix.** Remove the annotation (``kubectl annotate node <name> node-labeller.kubevirt.io/skip-node-``).
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NODE
from virt_admit.model.kubevirt.cpu_models import SKIP_NODE
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(node: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    skip = node.annotation(SKIP_NODE)
    if skip.text is not None and skip.text != "true":
        yield Finding(
            skip.path,
            f"{show(skip.text)} also excludes the node from CPU labelling; KubeVirt reads only the key. Remove the annotation.",
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
