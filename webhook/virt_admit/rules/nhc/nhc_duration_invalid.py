"""A NodeHealthCheck has a value that is not a valid duration.

**Why.** One invalid value makes the whole list of NodeHealthChecks unreadable for the operator, so all of them stop.

**Fix.** Write numbers with the units ``ms``, ``s``, ``m`` or ``h``, such as ``90s`` or ``1h30m``.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.kinds import NHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import DURATION, HEALTHY_DELAY, parse_duration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

SCHEMAS: Final = {"healthyDelay": HEALTHY_DELAY, "stormCooldownDuration": DURATION}


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for name, schema in SCHEMAS.items():
        field = obj["spec"][name]
        if field.present:
            try:
                parse_duration(field.value, schema)
            except ValueError as error:
                yield Finding(field.path, f"{error}. One invalid value stops every NodeHealthCheck of the cluster.")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:api/v1alpha1/nodehealthcheck_types.go",),
)
