"""The limit of a MachineHealthCheck is no number of machines and no percentage.

**Why.** The schema of machine.openshift.io checks texts only, that of Cluster API nothing. A negative number means that
nothing is ever remediated; an integer beyond 32 bits stops every MachineHealthCheck of the cluster; with a text that the
controller cannot read every reconcile fails. Digits in quotes are a number to OpenShift and an error to Cluster API.

**Fix.** Write an integer without quotes, or a percentage from ``"0%"`` to ``"100%"``.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import CAPI_MHC, MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.units import Fault, LimitError
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

_WRITE: Final = 'write an integer such as 2, or "40%"'
_EFFECT: Final = {
    Fault.NEGATIVE: f"nothing would ever be remediated; {_WRITE}",
    Fault.TOO_LARGE: f"such a value stops all health checks; {_WRITE}",
    Fault.ABOVE_100: f"there would be no limit; {_WRITE}",
}


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    try:
        view.read_limit()
    except LimitError as error:
        effect = _EFFECT.get(error.fault, "the controller cannot read it and remediates nothing")
        yield Finding(view.limit.path, f"{error}; {effect}")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#getMaxUnhealthy",
        "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go#getMaxUnhealthy",
    ),
)
