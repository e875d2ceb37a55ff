"""The external remediation annotation of a MachineHealthCheck has no effect or the wrong one.

**Why.** Only the value ``external-baremetal`` is valid; with any other value the check deletes
machines. The valid value leaves remediation to the bare metal operator. Other platforms do not have
that operator, so the machine stays unhealthy forever. A remediation template takes precedence over
the annotation.

**Fix.** On bare metal, write ``external-baremetal`` or use a Metal3RemediationTemplate. On other
platforms, remove the annotation.
"""

from virt_admit.model.kubernetes.kinds import INFRASTRUCTURE, MHC
from virt_admit.model.remediation import health_checks, machines
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(MHC,),
    reads={INFRASTRUCTURE: ()},
    metadata=(health_checks.STRATEGY,),
    action=Action.WARN,
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#internalRemediation"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    annotation = obj.annotation(health_checks.STRATEGY)
    if not annotation.present or view.handler:
        return
    if view.template.present:
        message = (
            "has no effect, because spec.remediationTemplate takes precedence. Remove one of the "
            "two."
        )
    elif not view.external:
        message = (
            f"{show(annotation.value)} is ignored, so the check deletes machines. Use "
            f"{health_checks.EXTERNAL}."
        )
    else:
        platform = machines.platform(context.cluster)
        if platform in ("", "BareMetal"):
            return
        message = (
            f"platform {platform} has no bare metal operator, so unhealthy machines are never "
            "remediated. Remove the annotation."
        )
    yield Finding(annotation.path, message)
