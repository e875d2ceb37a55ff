"""The name of a fence agent is missing or not valid.

**Why.** The operator runs a file of this name. The schema only requires ``fence_`` and one more
character anywhere in the text, so it accepts ``../fence_x`` and ``fence_x --help``. With such a
name no node is ever fenced.

**Fix.** Write the bare name of an agent that the operator ships, such as ``fence_ipmilan`` or
``fence_redfish``.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.remediation.fence_agents import AGENT
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{cel.is_map('self.?spec.?template.?spec')} && "
                f"!({cel.is_text('self.?spec.?template.?spec.?agent')} && "
                f"self.spec.template.spec.agent.matches('^{AGENT.pattern}$'))"
            ),
            path="'spec.template.spec.agent'",
            message=(
                "'this is not the name of a fence agent, so no node would be fenced. Write one "
                "that the operator ships, ' + 'such as fence_ipmilan.'"
            ),
            value="self.spec.template.spec.?agent.orValue(null)",
        ),
    ),
    sources=("medik8s/fence-agents-remediation:pkg/validation/validation.go#ValidateAgentName",),
)
def check(template: Object, _context: Context) -> Findings:
    agent = far_spec(template)["agent"]
    if not far_spec(template).is_map or (agent.text and AGENT.fullmatch(agent.text)):
        return
    invalid = f"{show(agent.value)} is not a valid fence agent name"
    problem = invalid if agent.present else "no fence agent is set"
    yield Finding(
        agent.path,
        f"{problem}, so no node would be fenced. Write one that the operator ships, such as "
        "fence_ipmilan.",
        cause=Cause.INVALID if agent.present else Cause.REQUIRED,
    )
