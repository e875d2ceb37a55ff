"""An escalation uses a remediator twice without support for multiple templates.

**Why.** The operator finds the request of a step by its kind. Two steps of one kind count as one
step, unless every template of that kind has the annotation
``remediation.medik8s.io/multiple-templates-support``. SNR and FAR add it. The operator rejects the
check otherwise.

**Fix.** Use one step per remediator, or update the remediator so that all its templates have the
annotation.
"""

from typing import Final

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import Step
from virt_admit.model.kubernetes.kinds import (
    FAR_TEMPLATE,
    MDR_TEMPLATE,
    METAL3_TEMPLATE,
    NHC,
    SNR_TEMPLATE,
)
from virt_admit.model.kubernetes.units import show
from virt_admit.rule import Action, Cause, Cluster, Context, Finding, Findings, Object, Unseen, rule

SUPPORT: Final = "remediation.medik8s.io/multiple-templates-support"


@rule(
    kinds=(NHC,),
    reads={SNR_TEMPLATE: (), FAR_TEMPLATE: (), MDR_TEMPLATE: (), METAL3_TEMPLATE: ()},
    action=Action.DENY,
    sources=(
        "medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#isMultipleTemplatesSupported",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    seen: set[str] = set()
    for step in remediation_steps.escalation(obj):
        if not step.kind_name or step.kind_name not in seen:
            seen.add(step.kind_name)
            continue
        try:
            supported = _supported(step, context.cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if not supported:
            yield Finding(
                step.reference["kind"].path,
                f"{show(step.kind_name)} is already used, and not all its templates have "
                f"{SUPPORT}. Use it once.",
                cause=Cause.DUPLICATE,
            )


def _supported(step: Step, cluster: Cluster) -> bool:
    """Return whether templates of that kind exist and all have the annotation, with any value."""
    found = False
    for template in step.templates(cluster):
        if SUPPORT not in template.annotations:
            return False
        found = True
    return found
