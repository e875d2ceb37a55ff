"""Two steps of an escalation have the same order.

**Why.** Their sequence would be random. The operator rejects such a check.

**Fix.** Give each step a different ``order``; the lowest runs first.
"""

from typing import Final

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model import cel
from virt_admit.rule import NHC, Action, Cause, Context, Finding, Findings, Object, rule

_STEPS: Final = cel.items("self.?spec.?escalatingRemediations")


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=_STEPS,
            when=(
                "type(item) == map && type(item.?order.orValue(null)) == int && "
                f"{_STEPS}.filter(step, type(step) == map && step.?order.orValue(null) == "
                "item.order).size() > 1"
            ),
            path="'spec.escalatingRemediations.order'",
            message=(
                "'another step also has this order, so their sequence would be random. Give each "
                "step its own order.'"
            ),
            value="item.order",
        ),
    ),
    sources=(
        (
            "medik8s/"
            "node-healthcheck-operator:nodehealthcheck_webhook.go#validateEscalatingRemediationsUniqueOrder"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    seen: set[int] = set()
    for step in remediation_steps.escalation(obj):
        order = step.order.integer
        if order is not None and order in seen:
            yield Finding(
                step.order.path,
                f"another step also has order {order}, so their sequence would be random. Give "
                "each step its own order.",
                cause=Cause.DUPLICATE,
            )
        elif order is not None:
            seen.add(order)
