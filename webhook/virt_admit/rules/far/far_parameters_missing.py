"""A fence agent has no parameter that differs between nodes.

**Why.** Without an address for each node the agent cannot fence, or it fences the same machine for
every unhealthy node. The operator's webhook rejects this.

**Fix.** Add the parameters that differ to ``nodeparameters``, or write ``{{.NodeName}}`` into a
shared value or into one of the shared Secret. Operators since 0.7 reject a template that has
nothing but a Secret for each node.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import FAR_TEMPLATE, Action, Cause, Context, Finding, Findings, Object, rule


def _shared(of: str) -> str:
    return cel.entries(f"{of}.?spec.?template.?spec.?sharedparameters")


def _missing(of: str) -> str:
    """Return whether the agent of an object has the same parameters for every node, in CEL."""
    spec = f"{of}.?spec.?template.?spec"
    shared, by_node = _shared(of), cel.entries(f"{spec}.?nodeparameters")
    return " && ".join(
        (
            cel.is_map(spec),
            (
                f"!({cel.is_text(f'{spec}.?sharedSecretName')} && "
                f"{spec}.?sharedSecretName.orValue('') != '')"
            ),
            f"{cel.entries(f'{spec}.?nodeSecretNames')}.size() == 0",
            f"!({shared}.size() > 0 && {by_node}.size() > 0)",
            f"!{by_node}.exists(name, type({by_node}[name]) == map && {by_node}[name].size() > 0)",
            (
                f"!{shared}.exists(name, type({shared}[name]) == string && "
                f"{shared}[name].contains('{{{{'))"
            ),
        )
    )


_KNOWN: Final = (
    f"oldObject != null && {_missing('oldObject')} && {_shared('self')}.all(name, name in "
    f"{_shared('oldObject')}) && {_shared('oldObject')}.all(name, name in {_shared('self')})"
)
"""Whether an update keeps the fault. The keys of a map have no order in CEL,
so they cannot be the value of a finding.
"""


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"{_missing('self')} && !({_KNOWN})",
            path="'spec.template.spec.sharedparameters'",
            message=(
                "'the fence agent cannot determine which machine to fence. Add nodeparameters, or "
                "write ' + '{{.NodeName}} into a shared value.'"
            ),
        ),
    ),
    sources=(
        (
            "medik8s/"
            "fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAgentParams"
        ),
    ),
)
def check(template: Object, _context: Context) -> Findings:
    spec = far_spec(template)
    shared = spec["sharedparameters"]
    secrets = spec["sharedSecretName"].text or spec["nodeSecretNames"].map
    by_node = spec["nodeparameters"].entries()
    if not spec.is_map or secrets or (shared.map and spec["nodeparameters"].map):
        return
    if any(value.map for _, value in by_node):
        return
    if any("{{" in value for value in shared.texts.values()):
        return
    what = "the same parameters for every node" if shared.map else "no parameters"
    yield Finding(
        shared.path,
        f"the fence agent has {what}, so it cannot determine which machine to fence. Add "
        "nodeparameters, or write {{.NodeName}} into a shared value.",
        cause=Cause.INVALID if shared.map else Cause.REQUIRED,
        value=tuple(shared.map),
    )
