"""An escalation continues after the machine is deleted.

**Why.** Machine deletion removes the machine and its node, so later steps have nothing to
remediate.

**Fix.** Give MachineDeletionRemediationTemplate the highest ``order``.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.rule import MDR_TEMPLATE, NHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    action=Action.WARN,
    sources=(
        "Workload Availability, Fencing and remediation 1.7.3",
        "medik8s/machine-deletion-remediation:controllers",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    steps = remediation_steps.escalation(obj)
    last = max((order for step in steps if (order := step.order.integer) is not None), default=0)
    for step in steps:
        order = step.order.integer
        if step.kind is MDR_TEMPLATE and order is not None and order < last:
            yield Finding(
                step.order.path,
                "machine deletion is not the last step, so later steps find neither machine nor "
                "node. Give it the highest order.",
                value=(order, last),
            )
