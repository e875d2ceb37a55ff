"""The range of a Cluster API MachineHealthCheck is empty or not a valid range.

**Why.** A range that begins after its end, or has a number above 32 bits, passes the schema. Every reconcile then
fails.

**Fix.** Write two numbers in brackets, the smaller one first: ``"[1-3]"`` remediates while one to three machines are
unhealthy.
"""

from virt_admit.model.remediation import health_checks
from virt_admit.rule import CAPI_MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    sources=(
        "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go#getUnhealthyRange",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.range.present:
        try:
            view.read_range()
        except ValueError as error:
            yield Finding(
                view.range.path,
                f'{error}: every reconcile fails and no machine is remediated. Write a range such as "[1-3]".',
            )
