"""A NodeHealthCheck deletes machines in a cluster without the Machine API.

**Why.** On platform None the Machine API does not run, so nodes have no machines. MachineDeletionRemediation has
nothing to delete, and the VMs stay on the failed node.

**Fix.** Use Self Node Remediation or fence agents.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import INFRASTRUCTURE, MDR_TEMPLATE, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines, plan
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    steps = [step for step in plan.mentioned(context.cached(health_checks.view, obj)) if step.kind is MDR_TEMPLATE]
    if steps and machines.platform(context.cluster) == "None":
        for step in steps:
            yield Finding(
                step.reference.path,
                "nodes have no machines to delete on platform None, so nothing is remediated. Use "
                "SelfNodeRemediationTemplate or FenceAgentsRemediationTemplate.",
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads={INFRASTRUCTURE: ()},
    action=Action.WARN,
    check=check,
    sources=("Workload Availability, Fencing and remediation 1.7.3",),
)
