"""The limit of a health check stops all remediation when its largest zone is lost.

**Why.** A health check counts a node as unhealthy from the first second of its condition. When a
zone is lost, all of its nodes become unhealthy at the same moment. If they exceed the limit, the
check remediates none of them, and VMs on them never start elsewhere until an administrator acts.
Often the limit is meant to do that: then leave the finding.

**Fix.** Use a limit that covers the largest zone. One health check for each zone does not help by
itself: the same limit refuses the loss of all its nodes too.
"""

from virt_admit.forecasts.remediation.limits import zone_limits
from virt_admit.forecasts.remediation.limits.zone_limits import RefusedZone
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, cut, rule, show


@rule(
    kinds=(NHC, MHC, CAPI_MHC),
    reads=zone_limits.READS,
    action=Action.AUDIT,
    event="RemediationRefused",
    at_admission=False,
    sources=(
        (
            "medik8s/node-healthcheck-operator:internal/controller/"
            "nodehealthcheck_controller.go#Reconcile"
        ),
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck#isAllowedRemediation",
        (
            "kubernetes-sigs/cluster-api:internal/controllers/machinehealthcheck/"
            "machinehealthcheck_controller.go"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    found = zone_limits.refused_zone(obj, context.cluster)
    if found is None:
        return
    view = context.cached(health_checks.view, obj)
    limit = view.range if view.range.present else view.limit
    path = limit.path if limit.present else obj["spec"].path
    yield Finding(
        path, check.first_that_fits(path, *_messages(view, limit, found)), value=found.zone
    )


def _messages(view: HealthCheck, limit: Field, found: RefusedZone) -> tuple[str, str]:
    subject = "nodes" if view.kind is NHC else "machines"
    word = f"{limit.path[-1]} {show(limit.value)}" if limit.present else "the default limit"
    zone = cut(found.zone, 40)
    problem = f"zone {zone} has {found.selected} of {found.total} selected {subject}: if it is lost"
    value = (
        f"[1-{found.selected}]" if view.range.present else str(zone_limits.least_limit(view, found))
    )
    remedy = f"Use a limit of {value}."
    return (
        f"{problem}, {word} refuses every remediation, so its VMs never restart. {remedy}",
        f"{problem}, the limit refuses every remediation. {remedy}",
    )
