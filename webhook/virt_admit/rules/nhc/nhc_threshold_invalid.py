"""The limit of a node health check is a value that its controller cannot use.

**Why.** Digits in quotes pass the schema and the operator's own webhook, and then every reconcile fails: nothing is
ever remediated. A number beyond 32 bits makes all node health checks of the cluster unreadable.

**Fix.** A number without quotes (``3``), or a percentage (``"40%"``).
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import NHC
from virt_admit.model.objects import Object
from virt_admit.model.units import Fault, LimitError, LimitKind, parse_int_or_percent
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

LIMITS: Final = {"minHealthy": LimitKind.NODE_MIN_HEALTHY, "maxUnhealthy": LimitKind.NODE_MAX_UNHEALTHY}
EFFECT: Final = {
    Fault.NEGATIVE: "the operator refuses it; write 0 or more",
    Fault.TOO_LARGE: "one such value stops all NodeHealthChecks; write a number of nodes",
    Fault.ABOVE_100: "write 100% or less",
}


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for name, limit in LIMITS.items():
        field = obj["spec"][name]
        if not field.present:
            continue
        try:
            parse_int_or_percent(field.value, limit)
        except LimitError as error:
            effect = EFFECT.get(error.fault, "every reconcile fails and nothing is remediated")
            yield Finding(
                field.path,
                f"{error}; {effect}",
                cause=Cause.TYPE if error.fault is Fault.TYPE else Cause.INVALID,
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=(
        "medik8s/node-healthcheck-operator:api/v1alpha1/validation.go#ValidateMinHealthyMaxUnhealthy",
        "medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go#getMinHealthy",
    ),
)
