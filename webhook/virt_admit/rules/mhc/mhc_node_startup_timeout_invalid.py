"""The start-up timeout of a MachineHealthCheck is negative or not a valid duration.

**Why.** The schema's pattern admits every string that ends in a duration or starts with 0. A value that cannot be
decoded stops every MachineHealthCheck of the cluster. With a negative time the check deletes every machine without a
node, so no machine ever joins.

**Fix.** Write numbers with the units ``ms``, ``s``, ``m`` or ``h``: ``10m``, ``1h30m``. ``"0"`` turns the start-up
check off. Cluster API v1beta2 takes whole seconds.
"""

from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import NegativeTime
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#needsRemediation",
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
        yield Finding(view.startup.path, f"{error}. One invalid time stops all MachineHealthChecks.")
