"""The label that excludes a node from remediation has a value other than "true".

**Why.** NodeHealthCheck accepts only ``true``. With any other value it still remediates the node and may reboot it,
although the label was meant to protect it.

**Fix.** Write ``"true"``, or remove the label.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

EXCLUDE = "remediation.medik8s.io/exclude-from-remediation"


def check(node: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    label = node.label(EXCLUDE)
    if label.text is not None and label.text != "true":
        yield Finding(
            label.path,
            f'{show(label.text)} does not exclude the node from remediation. Write "true", or remove the label.',
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NODE,),
    action=Action.WARN,
    metadata=(EXCLUDE,),
    check=check,
    sources=(
        "medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go#isNodeRemediationExcluded",
    ),
)
