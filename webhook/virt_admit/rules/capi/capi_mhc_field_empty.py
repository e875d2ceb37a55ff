"""A Cluster API MachineHealthCheck has an empty object or list that the schema rejects.

**Why.** Where a part of the spec is optional, the schema of v1beta2 wants either content or nothing: it rejects ``checks: {}``,
``remediation: {}`` and an empty list of conditions. Only ``virt-admit check`` sees such objects.

**Fix.** Remove the empty part, or write what it is to hold.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import CAPI_MHC
from virt_admit.model.objects import Field, Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

OBJECTS: Final = (("spec", "checks"), ("spec", "remediation"), ("spec", "remediation", "triggerIf"))


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    fields = [view.machine_conditions]
    if view.time_key == "timeoutSeconds":  # v1beta2: the older version has no such rule for node conditions
        fields = [*(obj.at(*steps) for steps in OBJECTS), view.conditions, *fields]
    yield from (
        Finding(field.path, "is empty, so the schema rejects the check. Remove it, or write its content.")
        for field in fields
        if _is_empty(field)
    )


def _is_empty(field: Field) -> bool:
    return field.value in ({}, [])


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    check=check,
    sources=("kubernetes-sigs/cluster-api:api/core/v1beta2/machinehealthcheck_types.go#MachineHealthCheckChecks",),
)
