"""A condition waits for a status that no node reports.

**Why.** A condition of a node is ``True``, ``False`` or ``Unknown``, compared exactly; anything else never matches, and
the check is blind for what it names. Custom conditions are only warned of: some fleets write one that never matches on
purpose, so that only machines whose node is gone are replaced, and name it ``NonexistentCondition``: it is left alone.

**Fix.** Write one of the three, with a capital letter and in quotes.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    for condition in view.entries:
        if condition.status and condition.status not in health_checks.STATUSES and not condition.inert:
            yield Finding(
                condition.entry["status"].path,
                f"{show(condition.status)} never matches: the status of a node's condition is "
                'exactly "True", "False" or "Unknown"',
                value=(condition.type, condition.status),
                cause=Cause.NOT_SUPPORTED,
                max_action=Action.DENY if condition.well_known else Action.WARN,
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    check=check,
    sources=(
        "openshift/managed-cluster-config:deploy/osd-machine-api/management-clusters",
        "k8s.io/api:core/v1#ConditionStatus",
    ),
)
