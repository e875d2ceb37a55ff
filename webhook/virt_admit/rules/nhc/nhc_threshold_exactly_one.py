"""A NodeHealthCheck has no limit or two.

**Why.** The operator needs exactly one of ``minHealthy`` and ``maxUnhealthy`` to know when to stop.
It rejects the check otherwise.

**Fix.** Keep one of the two fields, such as ``minHealthy: 51%``.
"""

from virt_admit.model import cel
from virt_admit.rule import NHC, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"({cel.present('self.?spec.?minHealthy')}) == "
                f"({cel.present('self.?spec.?maxUnhealthy')})"
            ),
            path="'spec.minHealthy'",
            message=(
                f"{cel.present('self.?spec.?minHealthy')} ? 'minHealthy and maxUnhealthy are both "
                "set; the operator rejects that. Keep one of them.' : 'no limit is set; the "
                "operator rejects that. Write minHealthy: 51%.'"
            ),
            value="[self.?spec.?minHealthy.orValue(null), self.?spec.?maxUnhealthy.orValue(null)]",
        ),
    ),
    sources=(
        (
            "medik8s/node-healthcheck-operator:api/v1alpha1/"
            "validation.go#ValidateMinHealthyMaxUnhealthy"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    minimum, maximum = obj.at("spec", "minHealthy"), obj.at("spec", "maxUnhealthy")
    if minimum.present and maximum.present:
        message = (
            "minHealthy and maxUnhealthy are both set; the operator rejects that. Keep one of them."
        )
        cause = Cause.FORBIDDEN
    elif not minimum.present and not maximum.present:
        message = "no limit is set; the operator rejects that. Write minHealthy: 51%."
        cause = Cause.REQUIRED
    else:
        return
    yield Finding(minimum.path, message, cause=cause, value=(minimum.value, maximum.value))
