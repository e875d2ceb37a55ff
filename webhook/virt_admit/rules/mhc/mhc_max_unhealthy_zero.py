"""The limit of a MachineHealthCheck is zero.

**Why.** Zero is valid and means that the check never remediates. The OpenShift controller then reconciles every
millisecond, so this is an expensive way to pause a check.

**Fix.** To pause a check, annotate it with ``cluster.x-k8s.io/paused: ""``.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    limit = view.known_limit()
    if limit is not None and limit.number == 0 and not view.range.present and not view.handler:
        yield Finding(
            view.limit.path,
            f"{limit} turns remediation off. To pause the check, use the annotation {health_checks.PAUSED}.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    action=Action.WARN,
    check=check,
    sources=("openshift/api:machine/v1beta1/types_machinehealthcheck.go",),
)
