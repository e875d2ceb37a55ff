"""A MachineHealthCheck is paused although its annotation says "false".

**Why.** The annotation ``cluster.x-k8s.io/paused`` pauses a check with any value, even ``"false"``.

**Fix.** To resume, remove the annotation: ``kubectl annotate machinehealthcheck NAME cluster.x-k8s.io/paused-``.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    value = view.paused.text
    if value is not None and health_checks.is_falsy_text(value) and not view.handler:
        yield Finding(
            view.paused.path,
            f"{show(value)} pauses the check, as any value does. To resume, remove the annotation.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    metadata=(health_checks.PAUSED,),
    action=Action.WARN,
    check=check,
    sources=("openshift/machine-api-operator:pkg/util/annotations/helpers.go",),
)
