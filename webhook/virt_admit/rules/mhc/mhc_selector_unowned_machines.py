"""A MachineHealthCheck selects machines that nothing replaces.

**Why.** Remediation deletes a machine so that its owner creates a new one. A machine without a
controlling owner counts against ``maxUnhealthy`` when it is unhealthy, but the check never
remediates it. In Cluster API the owner deletes the machine, and a TalosControlPlane up to release
0.5.12 does not.

**Fix.** Put the machines under a MachineSet, those of a control plane under a
ControlPlaneMachineSet, or use a remediation template.
"""

from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.remediation import check_scope, health_checks, machine_owners, machines
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    reads=machines.OWNER_READS,
    metadata=(health_checks.STRATEGY,),
    action=Action.WARN,
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#internalRemediation"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler or not machine_owners.decide(view):
        return
    selection = context.cached(check_scope.selected, obj)
    masters = {machine.name for machine in machines.control_plane(selection).objects}
    groups = (
        _of(selection, ""),
        _of(selection, machine_owners.TALOS) if view.kind is CAPI_MHC else [],
    )
    for unowned, is_talos in zip(groups, (False, True), strict=True):
        if not unowned:
            continue
        if is_talos:
            problem = f"{machine_owners.TALOS} does not replace"
            remedy = "Use a remediation template."
        else:
            owner = "ControlPlaneMachineSet" if masters.issuperset(unowned) else "MachineSet"
            problem = "no controller owns"
            remedy = f"Put them under a {owner} or use a remediation template."
        yield Finding(
            view.selector_field.path,
            f"{problem} {names(unowned, 60)}, so the check counts them but never remediates them. "
            f"{remedy}",
            value=(view.selector_field.value, *unowned),
        )
    selection.demand_all()


def _of(selection: Selection, kind: str) -> list[str]:
    """Return the names of the machines with a controller of this kind; empty: without any."""
    owners = ((machine.name, machine.controller) for machine in selection.objects)
    return [
        name for name, owner in owners if (owner["kind"].text if owner is not None else "") == kind
    ]
