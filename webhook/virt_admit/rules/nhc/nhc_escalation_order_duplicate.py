"""Two steps of an escalation have the same order.

**Why.** Their sequence would be random. The operator rejects such a check.

**Fix.** Give each step a different ``order``; the lowest runs first.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.rule import NHC, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateEscalatingRemediationsUniqueOrder",),
)
def check(obj: Object, _context: Context) -> Findings:
    seen: set[int] = set()
    for step in remediation_steps.escalation(obj):
        order = step.order.integer
        if order is not None and order in seen:
            yield Finding(
                step.order.path,
                f"another step also has order {order}, so their sequence would be random. Give each step its own order.",
                cause=Cause.DUPLICATE,
            )
        elif order is not None:
            seen.add(order)
