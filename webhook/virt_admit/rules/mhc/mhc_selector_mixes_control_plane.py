"""A MachineHealthCheck selects control-plane machines together with others.

**Why.** The two groups need different limits. Only one control-plane machine may be replaced at a
time, and only while the others are healthy. A shared limit is too loose for the control plane or
too strict for the workers.

**Fix.** Use one check per role.
"""

from virt_admit.model.kubernetes.kinds import MACHINE, MHC
from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.rule import Action, Context, Finding, Findings, Object, count, names, rule


@rule(
    kinds=(MHC,),
    reads={MACHINE: ("metadata.labels",)},
    action=Action.WARN,
    sources=(
        "Workload Availability, Machine health checks 6.3.2.1",
        "medik8s/node-healthcheck-operator:docs/configuration.md#Selector",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    selection = context.cached(check_scope.selected, obj)
    masters = machines.control_plane(selection)
    other_count = len(selection) - len(masters)
    if masters and other_count:
        machine_names = names((machine.name for machine in masters.objects), 60)
        yield Finding(
            view.selector_field.path,
            f"selects control-plane machines ({machine_names}) and {count(other_count, 'other')}, "
            "so both share one limit. Use one check per role.",
        )
    else:
        selection.demand_all()
