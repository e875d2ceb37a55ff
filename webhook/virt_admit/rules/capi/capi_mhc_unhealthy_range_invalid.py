"""The range of a Cluster API MachineHealthCheck is empty or not a valid range.

**Why.** A range that begins after its end, or has a number above 32 bits, passes the schema. Every
reconcile then fails.

**Fix.** Write two numbers in brackets, the smaller one first: ``"[1-3]"`` remediates while one to
three machines are unhealthy.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.units import LONGEST
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import CAPI_MHC, Action, Context, Finding, Findings, Object, rule

_RANGE: Final = (
    f"({cel_checks.V1BETA2} ? self.?spec.?remediation.?triggerIf.?unhealthyInRange : "
    "self.?spec.?unhealthyRange)"
)
_VALUE: Final = f"{_RANGE}.orValue(null)"
_FORM: Final = cel.text(r"^\[0*([0-9]{1,10})-0*([0-9]{1,10})\]$")
_VALID: Final = (
    f"[{_VALUE}].exists(range, type(range) == string && range.size() <= {LONGEST} && "
    f"range.matches({_FORM}) && [range.findAll('[0-9]+')].exists(ends, int(ends[0]) <= "
    f"int(ends[1]) && int(ends[1]) <= {health_checks.MAX_UINT32}))"
)


@rule(
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"{cel.present(_RANGE)} && !{_VALID}",
            path=(
                f"({cel_checks.V1BETA2} ? 'spec.remediation.triggerIf.unhealthyInRange' : "
                "'spec.unhealthyRange')"
            ),
            message=(
                f"{cel.shown(_VALUE)} + ' is not a range, or begins after its end: every reconcile "
                """fails and no machine ' + 'is remediated. Write a range such as "[1-3]".'"""
            ),
            value=_VALUE,
        ),
    ),
    sources=(
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/"
            "machinehealthcheck_controller.go#getUnhealthyRange"
        ),
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
                f"{error}: every reconcile fails and no machine is remediated. Write a range such "
                'as "[1-3]".',
            )
