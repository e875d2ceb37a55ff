"""A Cluster API MachineHealthCheck lists a Machine condition that depends on the check itself or
cannot exist.

**Why.** ``Ready`` and ``Available`` of a Machine depend on the health check, and the check sets the
others itself. The schema rejects them because they would be circular, and every type that is not a
condition's name. Only ``virt-admit check`` sees such objects.

**Fix.** List a node condition for the state of the node, or a Machine condition of the provider or
the control plane.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes import selectors
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import CAPI_MHC, Action, Cause, Context, Finding, Findings, Object, rule, show

_FORBIDDEN: Final = frozenset(
    ("Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated")
)


@rule(
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=cel_checks.MACHINE_CONDITIONS,
            when=(
                f"type(item) == map && {cel.is_text('item.?type')} && "
                f"{cel.one_of('item.type', tuple(sorted(_FORBIDDEN)))}"
            ),
            path=f"{cel_checks.MACHINE_PATH} + '.type'",
            message=(
                "'the Machine condition ' + item.type + ' depends on the health check itself, so "
                "the schema rejects it. ' + 'List a node condition or another Machine condition.'"
            ),
            value="item.type",
        ),
        cel.Denial(
            each=cel_checks.MACHINE_CONDITIONS,
            when=f"type(item) == map && {cel.is_text('item.?type')} && item.type != ''"
            f" && !(item.type.size() <= {selectors.LONGEST_CONDITION}"
            f" && item.type.matches({cel.text(selectors.CONDITION_TYPE)}))",
            path=f"{cel_checks.MACHINE_PATH} + '.type'",
            message=(
                "'this is not the name of a condition, so the schema rejects it. Write letters, "
                "digits, - _ or ., with an ' + 'optional DNS name and / before it.'"
            ),
            value="item.type",
        ),
    ),
    sources=("kubernetes-sigs/cluster-api:api/core/v1beta2/machinehealthcheck_types.go",),
)
def check(obj: Object, context: Context) -> Findings:
    for entry in context.cached(health_checks.view, obj).machine_conditions.items():
        if entry["type"].text in _FORBIDDEN:
            yield Finding(
                entry["type"].path,
                f"the Machine condition {entry['type'].text} depends on the health check itself, "
                "so the schema rejects it. List a node condition or another Machine condition.",
                cause=Cause.FORBIDDEN,
            )
        elif entry["type"].text and selectors.condition_type_error(entry["type"].text):
            yield Finding(
                entry["type"].path,
                f"{show(entry['type'].text)} is not the name of a condition, so the schema rejects "
                "it. Write letters, digits, - _ or ., with an optional DNS name and / before it.",
            )
