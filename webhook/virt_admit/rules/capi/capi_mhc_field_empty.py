"""A Cluster API MachineHealthCheck has an empty object or list that the schema rejects.

**Why.** Where a part of the spec is optional, the schema of v1beta2 wants either content or
nothing: it rejects ``checks: {}``, ``remediation: {}`` and an empty list of conditions. Only
``virt-admit check`` sees such objects.

**Fix.** Remove the empty part, or write what it is to hold.
"""

from collections.abc import Mapping
from typing import Final

from virt_admit.model import cel
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import CAPI_MHC, Action, Context, Finding, Findings, Object, rule

OBJECTS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("spec", "checks"): (
        "nodeStartupTimeoutSeconds",
        "unhealthyNodeConditions",
        "unhealthyMachineConditions",
    ),
    ("spec", "remediation"): ("triggerIf", "templateRef"),
    ("spec", "remediation", "triggerIf"): ("unhealthyLessThanOrEqualTo", "unhealthyInRange"),
}
"""The objects that must not be empty, with their fields.
The API server drops nulls and other fields first.
"""


_MESSAGE: Final = "'is empty, so the schema rejects the check. Remove it, or write its content.'"


def _denial(when: str, *steps: str) -> cel.Denial:
    value = f"self.?{'.?'.join(steps)}.orValue(null)"
    return cel.Denial(when=when, path=cel.text(".".join(steps)), message=_MESSAGE, value=value)


def _empty_list(*steps: str) -> str:
    field = f"self.?{'.?'.join(steps)}"
    return f"type({field}.orValue(null)) == list && {cel.items(field)}.size() == 0"


def _empty_object(steps: tuple[str, ...], fields: tuple[str, ...]) -> str:
    field = f"self.?{'.?'.join(steps)}"
    return " && ".join(
        (cel.is_map(field), *(f"!({cel.present(f'{field}.?{name}')})" for name in fields))
    )


_EMPTY_LISTS: Final = (
    *(
        _denial(
            f"{cel_checks.V1BETA2} && {_empty_list('spec', 'checks', name)}", "spec", "checks", name
        )
        for name in ("unhealthyNodeConditions", "unhealthyMachineConditions")
    ),
    _denial(
        f"!({cel_checks.V1BETA2}) && {_empty_list('spec', 'unhealthyMachineConditions')}",
        "spec",
        "unhealthyMachineConditions",
    ),
)
_EMPTY_OBJECTS: Final = tuple(
    _denial(f"{cel_checks.V1BETA2} && {_empty_object(steps, fields)}", *steps)
    for steps, fields in OBJECTS.items()
)


@rule(
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    denials=(*_EMPTY_LISTS, *_EMPTY_OBJECTS),
    sources=(
        (
            "kubernetes-sigs/cluster-api:api/core/v1beta2/"
            "machinehealthcheck_types.go#MachineHealthCheckChecks"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    newer = (
        view.time_key == "timeoutSeconds"
    )  # v1beta1 allows an empty list of node conditions, and has no such objects
    lists = (view.conditions, view.machine_conditions) if newer else (view.machine_conditions,)
    objects = ((obj.at(*steps), fields) for steps, fields in OBJECTS.items()) if newer else ()
    empty = [field for field in lists if field.value == []]
    empty += [
        field
        for field, fields in objects
        if field.is_map and not any(field[name].present for name in fields)
    ]
    for field in empty:
        yield Finding(
            field.path,
            "is empty, so the schema rejects the check. Remove it, or write its content.",
        )
