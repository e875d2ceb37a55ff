"""A percentage limit of a MachineHealthCheck rounds down to zero machines.

**Why.** MachineHealthChecks round down: 40% of 2 machines is 0, so the check never remediates. A
NodeHealthCheck rounds up.

**Fix.** Write an absolute number, such as 1 for small sets.
"""

from virt_admit.model.kubernetes.int_or_percent import allowed_unhealthy
from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, count, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    reads=machines.SELECT_READS,
    action=Action.WARN,
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#getMaxUnhealthy"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    limit = view.known_limit()
    if (
        limit is None
        or not limit.percent
        or limit.number in (0, 100)
        or view.range.present
        or view.handler
    ):
        return
    selection = context.cached(check_scope.selected, obj)
    if allowed_unhealthy(limit, len(selection), view.limit_of) == 0:
        selection.demand_all()
        if selection.positions:
            yield Finding(
                view.limit.path,
                f"{limit} of {count(len(selection), 'machine')} rounds down to 0, so nothing is "
                "ever remediated. Write 1.",
                value=str(limit),
            )
