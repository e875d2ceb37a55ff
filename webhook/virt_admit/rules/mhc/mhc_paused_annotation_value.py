"""A MachineHealthCheck is paused although its annotation says "false".

**Why.** The annotation ``cluster.x-k8s.io/paused`` pauses a check with any value, even ``"false"``.

**Fix.** To resume, remove the annotation: ``kubectl annotate machinehealthcheck NAME
cluster.x-k8s.io/paused-``.
"""

from virt_admit.model.remediation import health_checks
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(MHC, CAPI_MHC),
    metadata=(health_checks.PAUSED,),
    action=Action.WARN,
    sources=("openshift/machine-api-operator:pkg/util/annotations/helpers.go",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    value = view.paused.text
    if value is not None and health_checks.is_falsy_text(value) and not view.handler:
        yield Finding(
            view.paused.path,
            f"{show(value)} pauses the check, as any value does. To resume, remove the annotation.",
        )
