"""The range of a Cluster API MachineHealthCheck can never hold.

**Why.** Remediation needs a number of unhealthy machines within the range. With ``[0-0]`` no
machine may be unhealthy, and with a range that begins above the number of machines there are never
enough of them. The controller accepts both and remediates nothing.

**Fix.** Begin the range at 1 and end it at the number of machines that may be replaced at once:
``"[1-2]"``.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.rule import CAPI_MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(CAPI_MHC,),
    reads=machines.SELECT_READS,
    action=Action.WARN,
    sources=(
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/"
            "machinehealthcheck_controller.go#isAllowedRemediation"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if not view.range.present:
        return
    try:
        low, high = view.read_range()
    except ValueError:
        return  # capi-mhc-unhealthy-range-invalid reports this
    if high == 0:
        yield Finding(
            view.range.path,
            f"{view.range.text} holds only while no machine is unhealthy, so none is remediated. "
            "Write [1-1].",
        )
    elif low > 1:
        selection = context.cached(check_scope.selected, obj)
        budget = remediation_steps.budget(view, selection)
        if len(selection) < low:
            selection.demand_all()
        if budget.never:
            yield Finding(
                view.range.path,
                f"the check {budget.limit_text}, so none is remediated. Write a lower number.",
            )
