"""A health check takes the healthy state of a node for unhealthy.

**Why.** Only type and status are compared. ``Ready`` with status ``True``, or a pressure with status ``False``, is what
every healthy node reports: all of them would be remediated.

**Fix.** For ``Ready`` list the statuses ``"False"`` and ``Unknown``; for the pressures and ``NetworkUnavailable`` list
``"True"``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    for condition in context.cached(health_checks.view, obj).entries:
        if condition.well_known and condition.status == health_checks.HEALTHY[condition.type]:
            suggestion = '"False" or "Unknown"' if condition.type == "Ready" else '"True" or "Unknown"'
            yield Finding(
                condition.entry["status"].path,
                f"{condition.type}={condition.status} is what every healthy node reports, so all nodes would be "
                f"remediated; did you mean {suggestion}?",
                value=(condition.type, condition.status),
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#needsRemediation",
    ),
)
