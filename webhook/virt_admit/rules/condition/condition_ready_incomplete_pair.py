"""A health check lists only one of the two statuses of a node that is not ready.

**Why.** ``Ready=Unknown`` means that the node stopped reporting: no power, no network, or a crashed
kernel. ``Ready=False`` means that its kubelet reports a problem. A check that lists one of them
never acts on the other.

**Fix.** List both, usually with the same time.
"""

from typing import Final

from virt_admit.model.remediation import health_checks
from virt_admit.rule import CAPI_MHC, MHC, NHC, Action, Context, Finding, Findings, Object, rule

_MEANING: Final = {
    "Unknown": "nodes that stop reporting (no power, no network)",
    "False": "nodes whose kubelet reports a problem",
}


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.WARN,
    sources=("Workload Availability, Fencing and remediation 1.7.1",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    listed = {condition.status for condition in view.entries() if condition.type == "Ready"}
    missing = [status for status in _MEANING if status not in listed]
    if len(missing) == 1:
        yield Finding(
            view.conditions.path,
            f'Ready with status "{missing[0]}" is not listed: the check ignores '
            f"{_MEANING[missing[0]]}. Add an entry for it.",
            value=missing[0],
        )
