"""A MachineHealthCheck selects machines without an owner that would replace them.

**Why.** Remediation deletes a machine so that its owner creates a new one. A machine without a controlling owner counts
against ``maxUnhealthy`` when it is unhealthy, but the check never remediates it.

**Fix.** Put the machines under a MachineSet, or use a remediation template.
"""

from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    reads=machines.OWNER_READS,
    metadata=(health_checks.STRATEGY,),
    action=Action.WARN,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#internalRemediation",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler or view.external or view.template.present:
        return
    selection = context.cached(check_scope.selected, obj)
    unowned = [machine.name for machine in selection.objects if machine.controller is None]
    if unowned:
        yield Finding(
            view.selector_field.path,
            f"no MachineSet owns {names(unowned, 60)}, so the check counts them but never remediates them. "
            "Put them under a MachineSet or use a remediation template.",
            value=(view.selector_field.value, *unowned),
        )
    selection.demand_all()
