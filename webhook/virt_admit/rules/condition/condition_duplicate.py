"""A health check lists the same condition twice.

**Why.** The shorter time wins, in either order, so the other entry is misleading. In a NodeHealthCheck the schema
rejects the second entry.

**Fix.** Keep one entry for each pair of type and status.
"""

from typing import Any

from virt_admit.model.remediation import health_checks
from virt_admit.rule import CAPI_MHC, MHC, NHC, Action, Cause, Context, Finding, Findings, Object, Patch, rule, show


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    fixable=True,
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
            yield Finding(
                condition.entry.path,
                f"type {show(condition.type)} with status {show(condition.status)} is already listed; "
                "the shorter time wins. Remove one of the two entries.",
                value=pair,
                cause=Cause.DUPLICATE,
                max_action=Action.DENY if view.kind is NHC else Action.WARN,
                fix=(Patch("remove", condition.entry.path),) if seen[pair] == condition.entry.value else (),
                why="the same entry is listed before",
            )
        elif all(pair):
            seen[pair] = condition.entry.value
