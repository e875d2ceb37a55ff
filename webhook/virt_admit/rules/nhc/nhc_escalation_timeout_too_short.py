"""A step of an escalation has less than a minute.

**Why.** No remediator is done that fast; the next one would begin while the first still works on the node. The
operator refuses it. A timeout that is no duration makes all node health checks of the cluster unreadable.

**Fix.** What the remediator needs and some more: 5m for self node remediation, 10m for fence agents.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import plan
from virt_admit.model.units import DURATION, MINUTE, parse_duration
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for step in plan.escalation(obj):
        timeout = step.timeout
        if not timeout.present:
            yield Finding(timeout.path, "a step needs a timeout of at least 1m: write 5m", cause=Cause.REQUIRED)
            continue
        try:
            if parse_duration(timeout.value, DURATION) < MINUTE:
                yield Finding(
                    timeout.path, f"{timeout.value} is less than a minute, which the operator refuses: write 5m"
                )
        except ValueError as error:
            yield Finding(timeout.path, str(error))


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    event="RemediationLoop",
    check=check,
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateEscalatingRemediationsTimeout",),
)
