"""The range of a Cluster API MachineHealthCheck is empty or not a valid range.

**Why.** A range that begins after its end, or has a number above 32 bits, passes the schema. Every reconcile then
fails.

**Fix.** Write two numbers in brackets, the smaller one first: ``"[1-3]"`` remediates while one to three machines are
unhealthy.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import CAPI_MHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if view.range.present:
        try:
            view.read_range()
        except ValueError as error:
            yield Finding(
                view.range.path,
                f'{error}: every reconcile fails and no machine is remediated. Write a range such as "[1-3]".',
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    check=check,
    sources=(
        "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go#getUnhealthyRange",
    ),
)
