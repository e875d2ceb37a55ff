"""The limit of a NodeHealthCheck is not a valid number or percentage.

**Why.** Digits in quotes pass the schema and the operator's own webhook. Every reconcile then
fails, so nothing is ever remediated. A number above 32 bits makes all NodeHealthChecks of the
cluster unreadable.

**Fix.** Write a number without quotes (``3``) or a percentage (``"40%"``).
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.int_or_percent import (
    Fault,
    LimitError,
    LimitKind,
    parse_int_or_percent,
)
from virt_admit.model.remediation import cel_checks
from virt_admit.rule import NHC, Action, Cause, Context, Finding, Findings, Object, rule

LIMITS: Final = {
    "minHealthy": LimitKind.NODE_MIN_HEALTHY,
    "maxUnhealthy": LimitKind.NODE_MAX_UNHEALTHY,
}
EFFECT: Final = {
    Fault.NEGATIVE: ", so the operator rejects the check. Use 0 or more.",
    Fault.TOO_LARGE: ". One such value stops all NodeHealthChecks. Use a number of nodes.",
    Fault.ABOVE_100: ", so the operator rejects the check. Use 100% or less.",
}


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        *(
            cel.Denial(
                when=f"{cel.present(f'self.?spec.?{name}')}"
                f" && !{cel_checks.valid_limit(f'self.?spec.?{name}.orValue(null)', limit)}",
                path=f"'spec.{name}'",
                message=(
                    f"{cel.shown(f'self.?spec.?{name}.orValue(null)')} + ' is neither an integer "
                    "of 0 or more nor a percentage up to 100%, so nothing is remediated. ' + "
                    """'Write an integer such as 2, or "40%".'"""
                ),
                value=f"self.?spec.?{name}.orValue(null)",
            )
            for name, limit in LIMITS.items()
        ),
    ),
    sources=(
        (
            "medik8s/node-healthcheck-operator:api/v1alpha1/"
            "validation.go#ValidateMinHealthyMaxUnhealthy"
        ),
        (
            "medik8s/node-healthcheck-operator:internal/controller/"
            "nodehealthcheck_controller.go#getMinHealthy"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for name, limit in LIMITS.items():
        field = obj["spec"][name]
        if not field.present:
            continue
        try:
            parse_int_or_percent(field.value, limit)
        except LimitError as error:
            effect = EFFECT.get(
                error.fault, ". Every reconcile would fail, so nothing is remediated."
            )
            yield Finding(
                field.path,
                f"{error}{effect}",
                cause=Cause.TYPE if error.fault is Fault.TYPE else Cause.INVALID,
            )
