"""A fence agent uses an action other than reboot or off.

**Why.** The operator runs the agent to ensure that the node is down. Any other action (``status``,
``on``) does not ensure this. The operator's webhook rejects it.

**Fix.** Remove the parameter: the operator adds ``--action=reboot``.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.remediation import cel_fence_agents
from virt_admit.model.remediation.fence_agents import SUPPORTED_ACTIONS
from virt_admit.model.remediation.remediators import ACTIONS, far_values
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, rule, show

_MESSAGE: Final = (
    "'this value does not ensure that the node is down, so the operator rejects it. '"
    " + 'Remove the parameter to reboot instead.'"
)
_ACTIONS: Final = f"[{', '.join(map(cel.text, ACTIONS))}]"


def _refused(value: str) -> str:
    """Return whether a value is a text that the operator rejects, in CEL."""
    return f"(type({value}) == string && !({cel.one_of(value, SUPPORTED_ACTIONS)}))"


def _denial(place: str) -> cel.Denial:
    """Return the denial of an action that is a text."""
    values = cel.entries(f"{cel_fence_agents.SPEC}.?{place}")
    return cel.Denial(
        each=_ACTIONS,
        when=f"item in {values} && {_refused(f'{values}[item]')}",
        path=f"'spec.template.spec.{place}.' + item",
        message=_MESSAGE,
        value=f"{values}[item]",
    )


def _denial_by_node(place: str) -> cel.Denial:
    """Return the denial of an action that differs by node."""
    values = cel_fence_agents.values_of_nodes(place)
    return cel.Denial(
        each=values.each,
        when=f"{values.parameter} in {_ACTIONS} && {_refused(values.value)}",
        path=values.path,
        message=_MESSAGE,
        value=values.value,
    )


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    fixable=True,
    denials=(
        *(
            denial
            for place in ("sharedparameters", "nodeparameters")
            for denial in (_denial(place), _denial_by_node(place))
        ),
    ),
    sources=(
        "medik8s/fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAction",
    ),
)
def check(template: Object, _context: Context) -> Findings:
    for name, value in far_values(template):
        if name in ACTIONS and value.text is not None and value.text not in SUPPORTED_ACTIONS:
            yield Finding(
                value.path,
                f"{show(value.value)} does not ensure that the node is down, so the operator "
                "rejects it. Remove the parameter to reboot instead.",
                cause=Cause.NOT_SUPPORTED,
                fix=(Patch("remove", value.path),) if "sharedparameters" in value.path else (),
                why="the operator rejects the value",
            )
