"""A NodeHealthCheck combines maxUnhealthy with machine deletion.

**Why.** The check no longer counts a node that MachineDeletionRemediation has deleted. ``maxUnhealthy`` therefore never
stops it, and it can delete one machine after another. The operator rejects the combination.

**Fix.** Use ``minHealthy``.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.remediation import health_checks
from virt_admit.rule import MDR_TEMPLATE, NHC, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    sources=("medik8s/node-healthcheck-operator:api/v1alpha1/validation.go#ValidateMinHealthyMaxUnhealthy",),
)
def check(obj: Object, context: Context) -> Findings:
    limit, mdr = obj.at("spec", "maxUnhealthy"), MDR_TEMPLATE.kind.casefold()
    steps = remediation_steps.mentioned(context.cached(health_checks.view, obj)) if limit.present else ()
    if any(step.kind_name.casefold() == mdr for step in steps):
        yield Finding(
            limit.path,
            "machine deletion removes the unhealthy nodes that maxUnhealthy counts, so nothing limits it. Use minHealthy.",
            cause=Cause.FORBIDDEN,
        )
