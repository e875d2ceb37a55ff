"""The annotation that excludes a node from CPU labelling has a value other than "true",
or is written as a label.

**Why.** The labeller checks only whether the annotation exists. With ``"false"`` or an empty value
it still skips the node, although the value was meant to enable labelling. It does not read a label
of this name, so such a node is labelled like any other.

**Fix.** Remove the annotation (``kubectl annotate node <name>
node-labeller.kubevirt.io/skip-node-``). Write an annotation instead of the label.
"""

from virt_admit.model.kubevirt.instances.cpu_models import SKIP_NODE
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule, show


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
    if skip.text is not None and skip.text != "true":
        yield Finding(
            skip.path,
            f"{show(skip.text)} also excludes the node from CPU labelling; KubeVirt reads only the "
            "key. Remove the annotation.",
        )
    label = node.label(SKIP_NODE)
    if label.present and not skip.present:
        yield Finding(
            label.path,
            "KubeVirt reads an annotation of this name, not a label, so it still updates the CPU "
            "labels of this node. Write an annotation.",
        )
