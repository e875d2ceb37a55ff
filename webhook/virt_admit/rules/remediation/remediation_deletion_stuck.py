"""A remediation is being deleted, and its finalizer stays because its node is gone.

**Why.** An escalation to Machine Deletion Remediation deletes the node before the remediation of
the step before. The operators of Fence Agents Remediation up to 0.7 and of Self Node Remediation
look for the node first, and do not come to their finalizer. The object stays, and it may keep its
namespace or an uninstallation from ending. The failure that it reports is over with its node.

**Fix.** Update the operator. Without an update, take its own finalizer off: the node with its
taints is gone, so nothing is left to clean up. Find out why the first remediation timed out: the
next node may need it.
"""

from virt_admit.forecasts.remediation.ends import kept_remediations
from virt_admit.model.kubernetes.kinds import FAR, SNR
from virt_admit.model.messages import advice_of, command_of, without_command
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(FAR, SNR),
    reads=kept_remediations.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    of_deleted=True,
    sources=(
        "https://github.com/medik8s/fence-agents-remediation/pull/205",
        (
            "medik8s/self-node-remediation:internal/controller/"
            "selfnoderemediation_controller.go#ReconcileManager"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    found = kept_remediations.of(obj, context.cluster)
    if found is not None:
        path = obj.metadata["finalizers"].path
        advice = advice_of(found.remedy)
        ways = (f"{found.reason}. {way}" for way in (advice, without_command(advice)))
        message = check.first_that_fits(path, *ways, f"{found.reason}.")
        yield Finding(path, message, value=obj.name, command=command_of(found.remedy))
