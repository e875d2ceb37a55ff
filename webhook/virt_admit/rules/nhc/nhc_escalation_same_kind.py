"""An escalation uses one remediator twice that cannot tell its templates apart.

**Why.** The operator finds a step's request by its kind. Two steps of one kind are one step to it, unless *every*
template of that kind says ``remediation.medik8s.io/multiple-templates-support``, as SNR and FAR make theirs say. The
operator refuses it otherwise.

**Fix.** One step per remediator; or update the remediator, so that all its templates carry the annotation.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import FAR_TEMPLATE, MDR_TEMPLATE, METAL3_TEMPLATE, NHC, SNR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation import plan
from virt_admit.model.remediation.plan import Step
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

SUPPORT: Final = "remediation.medik8s.io/multiple-templates-support"


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    seen: set[str] = set()
    for step in plan.escalation(obj):
        if not step.kind_name or step.kind_name not in seen:
            seen.add(step.kind_name)
            continue
        try:
            supported = _supported(step, context.cluster)
        except Unseen as blind:
            yield blind
            continue
        if not supported:
            yield Finding(
                step.reference["kind"].path,
                f"{show(step.kind_name)} is used by an earlier step, and not all of its templates carry {SUPPORT}: use it once",
                cause=Cause.DUPLICATE,
            )


def _supported(step: Step, cluster: Cluster) -> bool:
    """Whether there are templates of that kind and every one carries the annotation, whatever its value."""
    found = False
    for template in step.templates(cluster):
        if SUPPORT not in template.annotations:
            return False
        found = True
    return found


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads={SNR_TEMPLATE: (), FAR_TEMPLATE: (), MDR_TEMPLATE: (), METAL3_TEMPLATE: ()},
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#isMultipleTemplatesSupported",),
)
