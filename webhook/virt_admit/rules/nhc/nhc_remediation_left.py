"""A NodeHealthCheck counts the remediation of a node that does not exist any more.

**Why.** An escalation may delete the Machine of a node and the node with it, or an administrator
does. Releases of the operator before 0.9 then leave the objects of the remediators whose time ran
out before. As long as ``status.unhealthyNodes`` lists one, the check stays in Remediating, and the
operator's webhook refuses to delete it, and each change of its selector and its remediators.

**Fix.** Update the Node Health Check Operator and Self Node Remediation: newer releases delete the
object and correct the status. Without an update, delete the object that is left, as the finding
says, and its finalizer if it stays. Then take the node out of ``status.unhealthyNodes``.
"""

from virt_admit.forecasts.remediation.ends import left_remediations
from virt_admit.model.messages import advice_of, command_of
from virt_admit.rule import NHC, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NHC,),
    reads=left_remediations.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        (
            "medik8s/node-healthcheck-operator:internal/controller/"
            "nodehealthcheck_controller.go#deleteOrphanedRemediationCRs"
        ),
        "https://github.com/medik8s/node-healthcheck-operator/issues/356",
    ),
)
def check(nhc: Object, context: Context) -> Findings:
    for found in left_remediations.left(nhc, context.cluster):
        told, advice = f"{found.reason}.", advice_of(found.remedy)
        see = f"Update its operator to 0.9 or later, or see virt-admit explain nhc/{nhc.name}."
        yield Finding(
            found.path.path,
            check.first_that_fits(
                found.path.path, f"{told} {advice}", f"{told} {found.brief}", f"{told} {see}", told
            ),
            value=found.node,
            command=command_of(found.remedy),
        )
    yield from left_remediations.unread(nhc, context.cluster)
