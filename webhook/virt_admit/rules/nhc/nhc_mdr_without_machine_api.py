"""A NodeHealthCheck deletes machines of nodes that have none.

**Why.** MachineDeletionRemediation looks up the Machine in the annotation
``machine.openshift.io/machine`` of the Node. Nodes that were added without the Machine API have no
Machine. On platform None the Machine API does not run at all. The remediator also does nothing for
a Machine without a controller, which nothing would create again. The VMs stay on the failed node.

**Fix.** Use Self Node Remediation or fence agents.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.kubernetes.kinds import INFRASTRUCTURE, MDR_TEMPLATE, NHC, NODE
from virt_admit.model.remediation import check_scope, health_checks, machine_deletion, machines
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, names, rule, union

_INSTEAD = "Use SelfNodeRemediationTemplate or FenceAgentsRemediationTemplate."


@rule(
    kinds=(NHC,),
    reads=union({INFRASTRUCTURE: ()}, machine_deletion.READS, {NODE: ("metadata.labels",)}),
    action=Action.WARN,
    sources=(
        "Workload Availability, Fencing and remediation 1.7.3",
        (
            "medik8s/machine-deletion-remediation:internal/controller/"
            "machinedeletionremediation_controller.go#getMachine"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    steps = [
        step
        for step in remediation_steps.mentioned(context.cached(health_checks.view, obj))
        if step.kind is MDR_TEMPLATE
    ]
    if not steps:
        return
    if machines.platform(context.cluster) == "None":
        for step in steps:
            yield Finding(
                step.reference.path,
                "nodes have no machines to delete on platform None, so nothing is remediated. "
                f"{_INSTEAD}",
            )
        return
    refused = machine_deletion.refused(context.cached(check_scope.selected, obj), context.cluster)
    for step in steps:
        for reason, nodes in refused.by_reason.items():
            yield Finding(
                step.reference.path,
                f"machine deletion does nothing for {names(nodes, 30)}: {reason}. {_INSTEAD}",
                value=(reason, nodes),
            )
    if refused.unseen:
        yield Unseen(refused.unseen)
