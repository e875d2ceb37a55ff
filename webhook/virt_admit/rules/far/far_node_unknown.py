"""A fence agent has parameters for a node that does not exist.

**Why.** Parameters are found by the node's exact name. A misspelled one (a short name for a long one, a port) leaves
the node that was meant without any.

**Fix.** Write the name as ``kubectl get nodes`` prints it, or remove the entry.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen
from virt_admit.model.kinds import FAR_TEMPLATE, NODE
from virt_admit.model.objects import Field, Object
from virt_admit.model.reads import NAME
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(template: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    for name, field in _nodes(template).items():
        try:
            if context.cluster.get(NODE, "", name) is None:
                yield Finding(
                    field.path,
                    f"there is no node {show(name)}: write the full name of a node, or remove the entry",
                    value=name,
                    cause=Cause.NOT_SUPPORTED,
                )
        except Unseen as blind:
            yield blind


def _nodes(template: Object) -> dict[str, Field]:
    """The nodes that are named, each with the first place where it is."""
    spec = far_spec(template)
    places = [values for _, values in spec["nodeparameters"].entries()]
    found: dict[str, Field] = {}
    for place in (*places, spec["nodeSecretNames"]):
        for name, field in place.entries():
            found.setdefault(name, field)
    return found


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    reads={NODE: NAME},
    action=Action.WARN,
    check=check,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediation_params.go#GetNodeNamesFromSpec",),
)
