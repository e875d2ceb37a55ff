"""A health check lists the same condition twice.

**Why.** The shorter time wins, in either order, so the other entry is misleading. In a
NodeHealthCheck the schema rejects the second entry.

**Fix.** Keep one entry for each pair of type and status.
"""

from typing import Any

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, rule, show


def _complete(entry: str) -> str:
    """Return whether an entry has a type and a status, in CEL."""
    parts = (
        f"{cel.is_text(f'{entry}.?{key}')} && {entry}.{key} != ''" for key in ("type", "status")
    )
    return f"(type({entry}) == map && {' && '.join(parts)})"


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    fixable=True,
    denials=(
        cel.Denial(
            each=cel_checks.CONDITIONS,
            when=f"self.kind == '{NHC.kind}' && {_complete('item')}"
            f" && {cel_checks.CONDITIONS}.filter(other, {_complete('other')}"
            " && other.type == item.type && other.status == item.status).size() > 1",
            path="'spec.unhealthyConditions'",
            message=(
                "'type ' + item.type + ' with status ' + item.status + ' is listed twice; the "
                "shorter time wins. ' + 'Remove one of the two entries.'"
            ),
            value="[item.type, item.status]",
        ),
    ),
    sources=("medik8s/node-healthcheck-operator:api/v1alpha1/nodehealthcheck_types.go",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    seen: dict[tuple[str, str], Any] = {}
    for condition in view.entries():
        pair = condition.type, condition.status
        if pair in seen:
            same = seen[pair] == condition.entry.value
            yield Finding(
                condition.entry.path,
                f"type {show(condition.type)} with status {show(condition.status)} is already "
                "listed; the shorter time wins. Remove one of the two entries.",
                value=pair,
                cause=Cause.DUPLICATE,
                max_action=Action.DENY if view.kind is NHC else Action.WARN,
                fix=(Patch("remove", condition.entry.path),) if same else (),
                why="the same entry is listed before",
            )
        elif all(pair):
            seen[pair] = condition.entry.value
