"""A NodeHealthCheck selects no node.

**Why.** The check watches nothing, and its status does not show that.

**Fix.** Compare the selector with ``kubectl get nodes --show-labels``.
"""

from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.rule import NHC, NODE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    reads={NODE: ("metadata.labels",)},
    action=Action.WARN,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#selector",),
)
def check(obj: Object, context: Context) -> Findings:
    nhc = context.cached(health_checks.view, obj)
    nodes = context.cached(check_scope.selected, obj)
    if nhc.selector.errors or nodes.positions:
        return
    nodes.demand_all()
    yield Finding(
        nhc.selector_field.path,
        "no node has these labels, so the check watches nothing. Compare with kubectl get nodes "
        "--show-labels.",
    )
