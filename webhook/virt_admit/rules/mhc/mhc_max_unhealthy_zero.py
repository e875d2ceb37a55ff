"""The limit of a MachineHealthCheck is zero.

**Why.** Zero is valid and means that the check never remediates. The OpenShift controller then
reconciles every millisecond, so this is an expensive way to pause a check.

**Fix.** To pause a check, annotate it with ``cluster.x-k8s.io/paused: ""``.
"""

from virt_admit.model.remediation import health_checks
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    action=Action.WARN,
    sources=("openshift/api:machine/v1beta1/types_machinehealthcheck.go",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    limit = view.known_limit()
    if limit is not None and limit.number == 0 and not view.range.present and not view.handler:
        yield Finding(
            view.limit.path,
            f"{limit} turns remediation off. To pause the check, use the annotation "
            f"{health_checks.PAUSED}.",
        )
