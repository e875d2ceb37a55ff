"""The label that excludes a node from remediation has a value other than "true".

**Why.** NodeHealthCheck up to release 0.11 excludes a node with this label whatever its value is:
after a loss of a node that has it with ``false`` nothing starts its VMs elsewhere. From release
0.12 on only ``true`` excludes: a node that has it with another value is remediated, and may be
rebooted although the label was meant to protect it.

**Fix.** Remove the label, or write ``"true"`` to exclude the node in every release.
"""

from virt_admit.model.commands import argument, shell
from virt_admit.model.remediation.health_checks import is_falsy_text
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule, show

EXCLUDE = "remediation.medik8s.io/exclude-from-remediation"


@rule(
    kinds=(NODE,),
    action=Action.WARN,
    metadata=(EXCLUDE,),
    sources=(
        (
            "medik8s/node-healthcheck-operator:controllers/"
            "nodehealthcheck_controller.go#isNodeRemediationExcluded (0.11)"
        ),
        (
            "medik8s/node-healthcheck-operator:internal/controller/"
            "nodehealthcheck_controller.go#isNodeRemediationExcluded"
        ),
    ),
)
def check(node: Object, _context: Context) -> Findings:
    label = node.label(EXCLUDE)
    if label.text is None or label.text == "true":
        return
    value, change = show(label.text), ("kubectl", "label", "node", argument(node.name))
    if is_falsy_text(label.text):
        message = (
            f"{value} excludes the node from remediation too, up to Node Health Check 0.11. Remove "
            "the label."
        )
        yield Finding(label.path, message, command=shell(*change, f"{EXCLUDE}-"))
    else:
        message = (
            f'{value} excludes the node only up to Node Health Check 0.11. Write "true", or remove '
            "the label."
        )
        yield Finding(label.path, message, command=shell(*change, f"{EXCLUDE}=true", "--overwrite"))
