"""A step of an escalation ends before its remediator can finish.

**Why.** The operator then cancels the remediator and starts the next one. Self Node Remediation
must wait until the node has certainly rebooted (about 3 min). A fence agent is retried (about 5
min).

**Fix.** Set a timeout longer than the time that the message names.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE, NHC, SNR_TEMPLATE
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.remediation import check_scope, remediators
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, rule, union


@rule(
    kinds=(NHC,),
    reads=union(remediators.SNR_READS, {SNR_TEMPLATE: (), FAR_TEMPLATE: ()}),
    action=Action.WARN,
    sources=(
        "medik8s/self-node-remediation:internal/reboot/calculator.go#GetRebootDuration",
        "medik8s/fence-agents-remediation:pkg/cli/cliexecuter.go#runWithRetry",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    nodes = context.cached(check_scope.selected, obj)
    for step in remediation_steps.escalation(obj):
        timeout = step.known_timeout
        if timeout is None or step.kind not in (SNR_TEMPLATE, FAR_TEMPLATE):
            continue
        try:
            needed = remediation_steps.takes(step, context.cluster, nodes.objects).most
        except Unseen as unseen:
            yield unseen
            continue
        if needed is not None and timeout < needed:
            yield Finding(
                step.timeout.path,
                f"{format_duration(timeout)} is less than the {format_duration(needed)} that "
                f"{step.remediator} may need: the operator would cancel it and start the next "
                "step. Use a longer timeout.",
                value=(timeout, needed),
            )
