"""A NodeHealthCheck has a value that is not a valid duration.

**Why.** One invalid value makes the whole list of NodeHealthChecks unreadable for the operator, so
all of them stop.

**Fix.** Write numbers with the units ``ms``, ``s``, ``m`` or ``h``, such as ``90s`` or ``1h30m``.
"""

from typing import Final

from virt_admit.model import cel_durations
from virt_admit.model.kubernetes.units import DURATION, HEALTHY_DELAY
from virt_admit.rule import NHC, Action, Context, Finding, Findings, Object, parse_duration, rule

SCHEMAS: Final = {"healthyDelay": HEALTHY_DELAY, "stormCooldownDuration": DURATION}
_EFFECT: Final = ". One invalid value stops every NodeHealthCheck of the cluster."


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        *(
            cel_durations.invalid(f"self.?spec.?{name}", f"'spec.{name}'", _EFFECT, schema)
            for name, schema in SCHEMAS.items()
        ),
    ),
    sources=("medik8s/node-healthcheck-operator:api/v1alpha1/nodehealthcheck_types.go",),
)
def check(obj: Object, _context: Context) -> Findings:
    for name, schema in SCHEMAS.items():
        field = obj["spec"][name]
        if field.present:
            try:
                parse_duration(field.value, schema)
            except ValueError as error:
                yield Finding(field.path, f"{error}{_EFFECT}")
