"""A fence agent has no parameter that differs between nodes.

**Why.** Without an address for each node the agent cannot fence, or it fences the same machine for every unhealthy node.
The operator's webhook rejects this.

**Fix.** Add the parameters that differ to ``nodeparameters``, write ``{{.NodeName}}`` into a shared value, or set the
names of Secrets.
"""

from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import FAR_TEMPLATE, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAgentParams",),
)
def check(template: Object, _context: Context) -> Findings:
    spec = far_spec(template)
    shared = spec["sharedparameters"]
    secrets = spec["sharedSecretName"].text or spec["nodeSecretNames"].map
    by_node = spec["nodeparameters"].entries()
    if (
        not spec.is_map
        or secrets
        or (shared.map and spec["nodeparameters"].map)
        or any(value.map for _, value in by_node)
    ):
        return
    if any("{{" in value for value in shared.texts.values()):
        return
    problem = (
        "the fence agent has the same parameters for every node" if shared.map else "the fence agent has no parameters"
    )
    yield Finding(
        shared.path,
        f"{problem}, so it cannot determine which machine to fence. Add nodeparameters, or write {{{{.NodeName}}}} into a "
        "shared value.",
        cause=Cause.INVALID if shared.map else Cause.REQUIRED,
        value=tuple(shared.map),
    )
