"""A MachineHealthCheck selects no machine.

**Why.** The check only considers Machines in its own namespace, and none of them matches its
selector. The machines may appear later, or a label is misspelled and a failed node is never
remediated.

**Fix.** Compare with ``kubectl get machines --show-labels`` in the namespace of the check.
"""

from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    reads=machines.SELECT_READS,
    action=Action.WARN,
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#getMachinesFromMHC"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.deliberate or view.selector.errors:
        return
    selection = context.cached(check_scope.selected, obj)
    if not selection.positions:
        selection.demand_all()
        yield Finding(
            view.selector_field.path,
            f"matches no Machine in namespace {obj.namespace or 'default'}, so the check has no "
            "effect. Compare with kubectl get machines --show-labels.",
        )
