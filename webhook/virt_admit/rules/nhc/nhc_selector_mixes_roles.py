"""A NodeHealthCheck selects control-plane nodes and workers together.

**Why.** The control plane is remediated one node at a time, workers as many as the limit allows.
One limit cannot fit both. In a compact cluster, where control-plane nodes are also workers, a check
for "workers" can stop the control plane.

**Fix.** Use one check per role. For workers: ``node-role.kubernetes.io/control-plane`` and
``node-role.kubernetes.io/master`` with ``DoesNotExist``.
"""

from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.selectors import EXISTS, IN
from virt_admit.model.remediation import check_scope, health_checks, selected_nodes
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import NHC, NODE, Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(NHC,),
    reads={NODE: ("metadata.labels",)},
    action=Action.WARN,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#selector",),
)
def check(obj: Object, context: Context) -> Findings:
    nhc = context.cached(health_checks.view, obj)
    selection = context.cached(check_scope.selected, obj)
    masters = [node.name for node in selected_nodes.control_plane(selection).objects]
    path = nhc.selector_field.path
    remedy = "Use one check per role: exclude control-plane and master with DoesNotExist."
    if 0 < len(masters) < len(selection):
        yield Finding(
            path,
            f"selects control-plane nodes ({names(masters, 50)}) and workers, so both share one "
            f"limit. {remedy}",
        )
        return
    selection.demand_all()
    if masters and _requires_workers(nhc):
        yield Finding(
            path, f"these workers are also the control plane: {names(masters, 60)}. {remedy}"
        )


def _requires_workers(nhc: HealthCheck) -> bool:
    """Return whether the selector requires the worker role."""
    return any(
        requirement.key == nodes.WORKER and requirement.operator in (IN, EXISTS)
        for requirement in nhc.selector.requirements
    )
