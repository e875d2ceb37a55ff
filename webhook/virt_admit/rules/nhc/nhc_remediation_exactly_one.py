"""A NodeHealthCheck has no remediation or two.

**Why.** The operator needs exactly one of ``remediationTemplate`` and ``escalatingRemediations``
and rejects the check otherwise. The first example of its own documentation sets both and is
rejected.

**Fix.** Keep one of the two fields.
"""

from virt_admit.model import cel
from virt_admit.rule import NHC, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"({cel.present('self.?spec.?remediationTemplate')})"
            f" == ({cel.items('self.?spec.?escalatingRemediations')}.size() > 0)",
            path="'spec.remediationTemplate'",
            message=(
                f"{cel.present('self.?spec.?remediationTemplate')} ? 'remediationTemplate and "
                "escalatingRemediations are both set; the operator rejects that. Keep one of "
                "them.' : 'no remediation is set; the operator rejects that. Set "
                "remediationTemplate or escalatingRemediations.'"
            ),
            value=f"{cel.present('self.?spec.?remediationTemplate')}",
        ),
    ),
    sources=(
        "medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateMutualRemediations",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    template = obj["spec"]["remediationTemplate"]
    escalates = any(True for _ in obj["spec"]["escalatingRemediations"].items())
    if template.present and escalates:
        message = (
            "remediationTemplate and escalatingRemediations are both set; the operator rejects "
            "that. Keep one of them."
        )
        cause = Cause.FORBIDDEN
    elif not template.present and not escalates:
        message = (
            "no remediation is set; the operator rejects that. Set remediationTemplate or "
            "escalatingRemediations."
        )
        cause = Cause.REQUIRED
    else:
        return
    yield Finding(template.path, message, cause=cause, value=(template.present, escalates))
