"""A shared parameter of a fence agent contains an expression that is not valid.

**Why.** Shared values are Go templates with one variable, ``{{.NodeName}}``. A misspelled variable
or an expression that is not closed fails when the operator fences a node. The operator's webhook
rejects it.

**Fix.** Write ``{{.NodeName}}`` where the value needs the name of the node.
"""

from virt_admit.model.remediation.go_templates import template_problem
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import FAR_TEMPLATE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    not_in_cel=(
        "values are Go templates, and the regular expressions of CEL cannot follow their quotes "
        "and nested blocks"
    ),
    sources=("medik8s/fence-agents-remediation:pkg/template/template.go#RenderParameterTemplate",),
)
def check(template: Object, _context: Context) -> Findings:
    for _, value in far_spec(template)["sharedparameters"].entries():
        # never quote the value: it may be a password
        if problem := template_problem(value.text or ""):
            yield Finding(
                value.path, f"{problem}, so no node can be fenced. Write {{{{.NodeName}}}}."
            )
