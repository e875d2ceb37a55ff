"""A fence agent is given nothing that tells one node from another.

**Why.** Without an address for each node the agent cannot fence, or would fence the same machine whichever node is
sick. The operator's webhook refuses it.

**Fix.** Put what differs into ``nodeparameters``, or write ``{{.NodeName}}`` into a shared value, or name Secrets.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import FAR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    spec = far_spec(template)
    shared = spec["sharedparameters"]
    secrets = spec["sharedSecretName"].text or spec["nodeSecretNames"].map
    if not spec.is_map or secrets or spec["nodeparameters"].map:
        return
    if any("{{" in value for value in shared.texts.values()):
        return
    problem = "the same parameters for every node" if shared.map else "no parameters for the fence agent"
    yield Finding(
        shared.path,
        f"{problem}: it cannot know which machine to fence; add nodeparameters, or write {{{{.NodeName}}}} into a "
        "shared value",
        cause=Cause.INVALID if shared.map else Cause.REQUIRED,
        value=tuple(shared.map),
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAgentParams",),
)
