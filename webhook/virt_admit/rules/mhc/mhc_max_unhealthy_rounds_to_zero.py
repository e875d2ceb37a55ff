"""A percentage of so few machines is less than one.

**Why.** MachineHealthChecks round down: 40% of two machines is none, so nothing is ever remediated. A NodeHealthCheck
rounds up.

**Fix.** Write an absolute number; 1 for small sets.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC
from virt_admit.model.messages import count
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines, watching
from virt_admit.model.units import allowed_unhealthy
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    limit = view.known_limit()
    if limit is None or not limit.percent or limit.number in (0, 100) or view.range.present or view.handler:
        return
    selection = context.cached(watching.selected, obj)
    if allowed_unhealthy(limit, len(selection), view.limit_of) == 0:
        selection.demand_all()
        if selection.positions:
            yield Finding(
                view.limit.path,
                f"{limit} of {count(len(selection), 'machine')} is 0: nothing is ever remediated; write 1",
                value=str(limit),
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    reads=machines.SELECT_READS,
    action=Action.WARN,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#getMaxUnhealthy",
    ),
)
