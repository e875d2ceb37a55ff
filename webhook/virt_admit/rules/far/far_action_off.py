"""A fence agent switches nodes off and does not switch them on again.

**Why.** After ``off`` the node stays down until an administrator switches it on. The
NodeHealthCheck never sees the node healthy and keeps the remediation forever. The cluster loses one
node after another.

**Fix.** Remove the parameter: the operator adds ``--action=reboot``. Keep ``off`` if unhealthy
nodes must stay down.
"""

from virt_admit.model.remediation.remediators import ACTIONS, far_values
from virt_admit.rule import FAR_TEMPLATE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.WARN,
    sources=(
        "medik8s/fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAction",
    ),
)
def check(template: Object, _context: Context) -> Findings:
    for name, value in far_values(template):
        if name in ACTIONS and value.text == "off":
            yield Finding(
                value.path,
                "off leaves the node down until an administrator switches it on. Remove the "
                "parameter to reboot instead.",
            )
