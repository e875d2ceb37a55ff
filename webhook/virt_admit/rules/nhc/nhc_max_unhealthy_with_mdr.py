"""A node health check counts unhealthy nodes while its remediator deletes them.

**Why.** A node that MachineDeletionRemediation has deleted is no longer counted: ``maxUnhealthy`` never stops, and one
machine after the other may go. The operator refuses the combination.

**Fix.** Use ``minHealthy``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import MDR_TEMPLATE, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, plan
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    limit, mdr = obj.at("spec", "maxUnhealthy"), MDR_TEMPLATE.kind.casefold()
    steps = plan.mentioned(context.cached(health_checks.view, obj)) if limit.present else ()
    if any(step.kind_name.casefold() == mdr for step in steps):
        yield Finding(
            limit.path,
            "machine deletion removes unhealthy nodes, so counting them never stops it; use minHealthy instead",
            cause=Cause.FORBIDDEN,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:api/v1alpha1/validation.go#ValidateMinHealthyMaxUnhealthy",),
)
