"""The label that excludes a node from remediation has a value other than "true".

**Why.** NodeHealthCheck accepts only ``true``. With any other value it still remediates the node and may reboot it,
although the label was meant to protect it.

**Fix.** Write ``"true"``, or remove the label.
"""

from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule, show

EXCLUDE = "remediation.medik8s.io/exclude-from-remediation"


@rule(
    kinds=(NODE,),
    action=Action.WARN,
    metadata=(EXCLUDE,),
    sources=(
        "medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go#isNodeRemediationExcluded",
    ),
)
def check(node: Object, _context: Context) -> Findings:
    label = node.label(EXCLUDE)
    if label.text is not None and label.text != "true":
        yield Finding(
            label.path,
            f'{show(label.text)} does not exclude the node from remediation. Write "true", or remove the label.',
        )
