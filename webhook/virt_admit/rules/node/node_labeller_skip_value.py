"""The annotation that takes a node out of CPU labelling has a value other than "true".

**Why.** The labeller only looks whether the annotation is there. With ``"false"`` or an empty value the node is skipped
all the same, although whoever wrote it meant to switch labelling on again.

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
            f"{show(skip.text)} skips the node as well, only the presence of the key counts; remove the annotation",
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
