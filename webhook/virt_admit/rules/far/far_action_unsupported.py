"""A fence agent uses an action other than reboot or off.

**Why.** The operator runs the agent to ensure that the node is down. Any other action (``status``, ``on``) does not ensure
this. The operator's webhook rejects it.

**Fix.** Remove the parameter: the operator adds ``--action=reboot``.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.remediation.remediators import ACTIONS, far_values
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

SUPPORTED: Final = ("", "reboot", "off")


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
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


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    fixable=True,
    check=check,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAction",),
)
