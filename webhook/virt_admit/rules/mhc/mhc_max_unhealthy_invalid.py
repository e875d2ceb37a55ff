"""The limit of a MachineHealthCheck is neither a number of machines nor a percentage.

**Why.** The schema of machine.openshift.io checks strings only, that of Cluster API nothing. With a
negative number the check never remediates. An integer above 32 bits stops every MachineHealthCheck
of the cluster. With a string that the controller cannot parse, every reconcile fails. OpenShift
reads digits in quotes as a number; Cluster API rejects them.

**Fix.** Write an integer without quotes, or a percentage from ``"0%"`` to ``"100%"``.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.int_or_percent import Fault, LimitError, LimitKind
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, rule

_REMEDY: Final = 'Write an integer such as 2, or "40%".'
_EFFECT: Final = {
    Fault.NEGATIVE: f", so the check would never remediate a machine. {_REMEDY}",
    Fault.TOO_LARGE: f". Such a value stops all health checks of this kind. {_REMEDY}",
    Fault.ABOVE_100: f", so remediation would have no limit. {_REMEDY}",
}
_VALUE: Final = f"{cel_checks.LIMIT}.orValue(null)"
_VALID: Final = (
    f"({cel_checks.OF_CLUSTER_API} ? {cel_checks.valid_limit(_VALUE, LimitKind.CLUSTER_API)}"
    f" : {cel_checks.valid_limit(_VALUE, LimitKind.MACHINE_API)})"
)


@rule(
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"{cel.present(cel_checks.LIMIT)} && !{_VALID}",
            path=(
                f"({cel_checks.V1BETA2} ? 'spec.remediation.triggerIf.unhealthyLessThanOrEqualTo' "
                ": 'spec.maxUnhealthy')"
            ),
            message=(
                f"{cel.shown(_VALUE)} + ' is neither an integer of 0 or more nor a percentage up "
                "to 100%, so the check ' + 'would remediate nothing or everything. ' + "
                f"{cel.text(_REMEDY)}"
            ),
            value=_VALUE,
        ),
    ),
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#getMaxUnhealthy"
        ),
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/"
            "machinehealthcheck_controller.go#getMaxUnhealthy"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    try:
        view.read_limit()
    except LimitError as error:
        effect = _EFFECT.get(
            error.fault, ". The controller cannot read the limit, so it remediates nothing."
        )
        yield Finding(view.limit.path, f"{error}{effect}")
