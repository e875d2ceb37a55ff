"""A fence agent has no parameter that differs between nodes.

**Why.** Without an address for each node the agent cannot fence, or it fences the same machine for every unhealthy node.
The operator's webhook rejects this.

**Fix.** Add the parameters that differ to ``nodeparameters``, write ``{{.NodeName}}`` into a shared value, or set the
names of Secrets.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import FAR_TEMPLATE, Action, Cause, Context, Finding, Findings, Object, rule

_SPEC: Final = "self.?spec.?template.?spec"
_SHARED: Final = cel.entries(f"{_SPEC}.?sharedparameters")
_BY_NODE: Final = cel.entries(f"{_SPEC}.?nodeparameters")
_MISSING: Final = " && ".join(
    (
        cel.is_map(_SPEC),
        f"!({cel.is_text(f'{_SPEC}.?sharedSecretName')} && {_SPEC}.?sharedSecretName.orValue('') != '')",
        f"{cel.entries(f'{_SPEC}.?nodeSecretNames')}.size() == 0",
        f"!({_SHARED}.size() > 0 && {_BY_NODE}.size() > 0)",
        f"!{_BY_NODE}.exists(name, type({_BY_NODE}[name]) == map && {_BY_NODE}[name].size() > 0)",
        f"!{_SHARED}.exists(name, type({_SHARED}[name]) == string && {_SHARED}[name].contains('{{{{'))",
    )
)
"""Whether the agent has the same parameters for every node, in CEL."""


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=_MISSING,
            path="'spec.template.spec.sharedparameters'",
            message="'the fence agent cannot determine which machine to fence. Add nodeparameters, or write '"
            " + '{{.NodeName}} into a shared value.'",
        ),
    ),
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
