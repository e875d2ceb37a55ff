"""A health check watches one way in which a node is not ready, and not the other.

**Why.** ``Ready=Unknown`` means that the node is silent: no power, no network, a dead kernel. ``Ready=False`` means that
its kubelet reports trouble. A check for one of them never acts on the other.

**Fix.** List both, usually with the same time.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

_MEANING: Final = {"Unknown": "the node is silent: power, network", "False": "the kubelet reports trouble"}


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    listed = {condition.status for condition in view.entries if condition.type == "Ready"}
    missing = [status for status in _MEANING if status not in listed]
    if len(missing) == 1:
        yield Finding(
            view.conditions.path,
            f'the check never acts on Ready="{missing[0]}" ({_MEANING[missing[0]]}); add it',
            value=missing[0],
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.WARN,
    check=check,
    sources=("Workload Availability, Fencing and remediation 1.7.1",),
)
