"""A health check lists the healthy state of a node as unhealthy.

**Why.** Controllers compare only type and status. Every healthy node reports ``Ready`` with status
``"True"`` and each pressure condition with status ``"False"``, so the check would remediate all
nodes.

**Fix.** For ``Ready``, list the statuses ``"False"`` and ``"Unknown"``. For the pressure conditions
and ``NetworkUnavailable``, list ``"True"``.
"""

from virt_admit.model import cel
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import CAPI_MHC, MHC, NHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    event="RemediationLoop",
    denials=(
        cel.Denial(
            each=cel_checks.CONDITIONS,
            when=(
                f"{cel.is_map('optional.of(item)')} && item.?type.orValue(null) in "
                f"{health_checks.HEALTHY} && {health_checks.HEALTHY}[item.type] == "
                "item.?status.orValue(null)"
            ),
            path=f"{cel_checks.PATH} + '.status'",
            message="'every healthy node reports ' + item.type + '=' + item.status + "
            "', so the check would remediate all nodes.'",
            value="[item.type, item.status]",
        ),
    ),
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#needsRemediation"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    for condition in context.cached(health_checks.view, obj).entries():
        if condition.well_known and condition.status == health_checks.HEALTHY[condition.type]:
            suggestion = (
                '"False" or "Unknown"' if condition.type == "Ready" else '"True" or "Unknown"'
            )
            yield Finding(
                condition.entry["status"].path,
                f"every healthy node reports {condition.type}={condition.status}, so the check "
                f"would remediate all nodes. Use {suggestion}.",
                value=(condition.type, condition.status),
            )
