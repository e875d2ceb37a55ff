"""The annotation for outside remediation does not do what it says.

**Why.** Only the value ``external-baremetal`` counts; with any other the machines are deleted. It hands the machine to the
bare metal operator: on another platform nobody answers, and the machine stays unhealthy for ever. A remediation template
wins over it.

**Fix.** On bare metal write ``external-baremetal`` or use a Metal3RemediationTemplate; elsewhere remove the annotation.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import INFRASTRUCTURE, MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    annotation = obj.annotation(health_checks.STRATEGY)
    if not annotation.present or view.handler:
        return
    if view.template.present:
        message = "has no effect next to spec.remediationTemplate, which wins; remove one of them"
    elif not view.external:
        message = (
            f"{show(annotation.value)} is ignored and machines get deleted; the only value is {health_checks.EXTERNAL}"
        )
    else:
        platform = machines.platform(context.cluster)
        if platform in ("", "BareMetal"):
            return
        message = f"nobody answers on platform {platform}, sick machines stay as they are; remove the annotation"
    yield Finding(annotation.path, message)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC,),
    reads={INFRASTRUCTURE: ()},
    metadata=(health_checks.STRATEGY,),
    action=Action.WARN,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#internalRemediation",
    ),
)
