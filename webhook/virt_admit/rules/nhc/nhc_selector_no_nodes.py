"""A NodeHealthCheck selects no node.

**Why.** The check watches nothing, and its status does not show that.

**Fix.** Compare the selector with ``kubectl get nodes --show-labels``.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import NHC, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    nhc = context.cached(health_checks.view, obj)
    nodes = context.cached(check_scope.selected, obj)
    if nhc.selector.errors or nodes.positions:
        return
    nodes.demand_all()
    yield Finding(
        nhc.selector_field.path,
        "no node has these labels, so the check watches nothing. Compare with kubectl get nodes --show-labels.",
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads={NODE: ("metadata.labels",)},
    action=Action.WARN,
    check=check,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#selector",),
)
