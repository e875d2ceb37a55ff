"""A fence agent switches nodes off and not on again.

**Why.** After ``off`` the node stays down until somebody switches it on. The NodeHealthCheck never sees it healthy,
keeps the remediation for ever, and one node after the other is gone.

**Fix.** Remove the parameter: the operator adds ``--action=reboot``. Keep ``off`` where sick nodes are to stay down.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import FAR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation.remediators import ACTIONS, far_values
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for name, value in far_values(template):
        if name in ACTIONS and value.text == "off":
            yield Finding(
                value.path,
                "off leaves the node down until somebody switches it on; remove the parameter for reboot",
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.WARN,
    check=check,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAction",),
)
