"""The start-up timeout of a MachineHealthCheck is negative or not a valid duration.

**Why.** The schema's pattern admits every string that ends in a duration or starts with 0. A value
that cannot be decoded stops every MachineHealthCheck of the cluster. With a negative time the check
deletes every machine without a node, so no machine ever joins.

**Fix.** Write numbers with the units ``ms``, ``s``, ``m`` or ``h``: ``10m``, ``1h30m``. ``"0"``
turns the start-up check off. Cluster API v1beta2 takes whole seconds.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.units import NODE_STARTUP_TIMEOUT
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.model.remediation.health_checks import NegativeTime
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, rule

_VALUE: Final = f"{cel_checks.STARTUP}.orValue(null)"


@rule(
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{cel.present(cel_checks.STARTUP)} && "
                f"!{cel_checks.valid_time(_VALUE, NODE_STARTUP_TIMEOUT)}"
            ),
            path=(
                f"({cel_checks.V1BETA2} ? 'spec.checks.nodeStartupTimeoutSeconds' : "
                "'spec.nodeStartupTimeout')"
            ),
            message=(
                f"{cel.shown(_VALUE)} + ' is negative or not a valid time. One invalid time stops "
                f"all ' + 'MachineHealthChecks. Write ' + ({cel_checks.V1BETA2} ? '600' : '10m') + "
                "', or 0 to turn the start-up check off.'"
            ),
            value=_VALUE,
        ),
    ),
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#needsRemediation"
        ),
        "kubernetes-sigs/cluster-api:core/webhooks/admission/machinehealthcheck.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    try:
        view.startup_time()
    except NegativeTime as error:
        yield Finding(
            view.startup.path,
            f"{error}: every machine would be deleted before its node joins. "
            f"Write {view.default_startup}, or 0 to turn the start-up check off.",
        )
    except ValueError as error:
        yield Finding(
            view.startup.path, f"{error}. One invalid time stops all MachineHealthChecks."
        )
