"""A fence agent has parameters for a node that does not exist.

**Why.** The operator looks parameters up by the exact node name. If the name is misspelled (a short
name instead of the full name, an extra port), the intended node has no parameters.

**Fix.** Write the name as ``kubectl get nodes`` prints it, or remove the entry.
"""

from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE, NODE
from virt_admit.model.kubernetes.reads import NAME
from virt_admit.model.kubernetes.units import show
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, Unseen, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    reads={NODE: NAME},
    action=Action.WARN,
    sources=(
        "medik8s/fence-agents-remediation:fenceagentsremediation_params.go#GetNodeNamesFromSpec",
    ),
)
def check(template: Object, context: Context) -> Findings:
    for name, field in _nodes(template).items():
        try:
            if context.cluster.get(NODE, "", name) is None:
                yield Finding(
                    field.path,
                    f"node {show(name)} does not exist, so this entry has no effect. Write a full "
                    "node name, or remove it.",
                    value=name,
                    cause=Cause.NOT_SUPPORTED,
                )
        except Unseen as unseen:
            yield unseen


def _nodes(template: Object) -> dict[str, Field]:
    """Return the first field for each node name that the template uses."""
    spec = far_spec(template)
    parameters = [values for _, values in spec["nodeparameters"].entries()]
    found: dict[str, Field] = {}
    for by_node in (*parameters, spec["nodeSecretNames"]):
        for name, field in by_node.entries():
            found.setdefault(name, field)
    return found
