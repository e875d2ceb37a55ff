"""A NodeHealthCheck combines maxUnhealthy with machine deletion.

**Why.** The check no longer counts a node that MachineDeletionRemediation has deleted.
``maxUnhealthy`` therefore never stops it, and it can delete one machine after another. The operator
rejects the combination.

**Fix.** Use ``minHealthy``.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import MDR_TEMPLATE, NHC
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule


def _deletes(template: str) -> str:
    """Return whether a reference names a template that deletes Machines, in CEL."""
    kind = f"{template}.?kind"
    return (
        f"({cel.is_map(template)} && {cel.is_text(kind)}"
        f" && {kind}.orValue('').lowerAscii() == {cel.text(MDR_TEMPLATE.kind.casefold())})"
    )


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{cel.present('self.?spec.?maxUnhealthy')} && "
                f"({_deletes('self.?spec.?remediationTemplate')} || "
                f"{cel.items('self.?spec.?escalatingRemediations')}.exists(step, type(step) == map "
                f"&& {_deletes('step.?remediationTemplate')}))"
            ),
            path="'spec.maxUnhealthy'",
            message=(
                "'machine deletion removes the unhealthy nodes that maxUnhealthy counts, so "
                "nothing limits it. ' + 'Use minHealthy.'"
            ),
            value="self.spec.maxUnhealthy",
        ),
    ),
    sources=(
        (
            "medik8s/node-healthcheck-operator:api/v1alpha1/"
            "validation.go#ValidateMinHealthyMaxUnhealthy"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    limit, mdr = obj.at("spec", "maxUnhealthy"), MDR_TEMPLATE.kind.casefold()
    if not limit.present:
        return
    steps = remediation_steps.mentioned(context.cached(health_checks.view, obj))
    if any(step.kind_name.casefold() == mdr for step in steps):
        yield Finding(
            limit.path,
            "machine deletion removes the unhealthy nodes that maxUnhealthy counts, so nothing "
            "limits it. Use minHealthy.",
            cause=Cause.FORBIDDEN,
        )
