"""Machines are to be deleted in a cluster that has none.

**Why.** On platform None the Machine API does not run: nodes have no machines, and MachineDeletionRemediation can
delete nothing. The sick node keeps its VMs.

**Fix.** Use self node remediation or fence agents.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import INFRASTRUCTURE, MDR_TEMPLATE, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines, plan
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    steps = [each for each in plan.mentioned(context.cached(health_checks.view, obj)) if each.kind is MDR_TEMPLATE]
    if steps and machines.platform(context.cluster) == "None":
        for step in steps:
            yield Finding(
                step.reference.path,
                "this cluster runs on platform None, its nodes have no machines to delete; use "
                "SelfNodeRemediationTemplate or FenceAgentsRemediationTemplate",
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
