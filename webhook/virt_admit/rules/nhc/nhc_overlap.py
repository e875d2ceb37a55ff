"""Two NodeHealthChecks select the same node.

**Why.** Each check counts against its own limit and calls its own remediators. One reboots an
unhealthy node while the other replaces it. Together they can remediate more nodes than either limit
allows.

**Fix.** Use selectors that have no node in common.
"""

from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.rule import NHC, NODE, Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(NHC,),
    reads={NHC: (), NODE: ("metadata.labels",)},
    action=Action.WARN,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#selector",),
)
def check(obj: Object, context: Context) -> Findings:
    nhc = context.cached(health_checks.view, obj)
    selection = context.cached(check_scope.selected, obj)
    for rival in check_scope.rivals(nhc, context.cluster):
        shared = selection.among(rival.selection.positions)
        yield Finding(
            nhc.selector_field.path,
            f"NodeHealthCheck {rival.check.obj.name} selects the same nodes "
            f"({names((node.name for node in shared.objects), 60)}), so both would remediate them. "
            "Select each node once.",
            value=rival.check.obj.name,
        )
