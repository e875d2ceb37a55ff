"""A fence agent uses an action other than reboot or off.

**Why.** The operator runs the agent to ensure that the node is down. Any other action (``status``, ``on``) does not ensure
this. The operator's webhook rejects it.

**Fix.** Remove the parameter: the operator adds ``--action=reboot``.
"""

from typing import Final

from virt_admit.model.remediation.remediators import ACTIONS, far_values
from virt_admit.rule import FAR_TEMPLATE, Action, Cause, Context, Finding, Findings, Object, Patch, rule, show

SUPPORTED: Final = ("", "reboot", "off")


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    fixable=True,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAction",),
)
def check(template: Object, _context: Context) -> Findings:
    for name, value in far_values(template):
        if name in ACTIONS and value.text is not None and value.text not in SUPPORTED:
            yield Finding(
                value.path,
                f"{show(value.value)} does not ensure that the node is down, so the operator rejects it. "
                "Remove the parameter to reboot instead.",
                cause=Cause.NOT_SUPPORTED,
                fix=(Patch("remove", value.path),) if "sharedparameters" in value.path else (),
                why="the operator rejects the value",
            )
