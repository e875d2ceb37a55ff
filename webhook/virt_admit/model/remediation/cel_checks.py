"""The settings of health checks in CEL, for all three kinds."""

from __future__ import annotations

from typing import Final

from virt_admit.model import cel, cel_durations
from virt_admit.model.kubernetes import units
from virt_admit.model.kubernetes.int_or_percent import MAX_INT32, LimitKind
from virt_admit.model.remediation.health_checks import TERMINATING

V1BETA2: Final = "self.apiVersion == 'cluster.x-k8s.io/v1beta2'"
"""Whether the check has the layout of the newest version of Cluster API, in CEL."""
OF_CLUSTER_API: Final = "self.apiVersion.startsWith('cluster.x-k8s.io/')"
CONDITIONS_FIELD: Final = (
    f"({V1BETA2} ? self.?spec.?checks.?unhealthyNodeConditions : self.?spec.?unhealthyConditions)"
)
CONDITIONS: Final = cel.items(CONDITIONS_FIELD)
"""The list of node conditions, in CEL."""
PATH: Final = f"({V1BETA2} ? 'spec.checks.unhealthyNodeConditions' : 'spec.unhealthyConditions')"
HANDLER: Final = (
    f"(self.kind == 'MachineHealthCheck' && {CONDITIONS}.size() > 0 && {CONDITIONS}.all(item, "
    f"{cel.entries('optional.of(item)')}.?type.orValue(null) == '{TERMINATING}'))"
)
"""Whether the check is a termination handler, in CEL."""
MACHINE_CONDITIONS_FIELD: Final = (
    f"({V1BETA2} ? self.?spec.?checks.?unhealthyMachineConditions"
    f" : {OF_CLUSTER_API} ? self.?spec.?unhealthyMachineConditions : self.?nothing)"
)
MACHINE_CONDITIONS: Final = cel.items(MACHINE_CONDITIONS_FIELD)
"""The list of conditions of the Machine itself (Cluster API), in CEL."""
MACHINE_PATH: Final = (
    f"({V1BETA2} ? 'spec.checks.unhealthyMachineConditions' : 'spec.unhealthyMachineConditions')"
)
TIME_KEY: Final = (
    f"(self.kind == 'NodeHealthCheck' ? 'duration' : {V1BETA2} ? 'timeoutSeconds' : 'timeout')"
)
TIME: Final = (
    f"(self.kind == 'NodeHealthCheck' ? item.?duration : {V1BETA2} ? item.?timeoutSeconds : "
    "item.?timeout)"
)
"""The time of the condition ``item``, in CEL."""
USUAL_TIME: Final = f"({V1BETA2} ? '300' : '300s')"
STARTUP: Final = (
    f"({V1BETA2} ? self.?spec.?checks.?nodeStartupTimeoutSeconds : self.?spec.?nodeStartupTimeout)"
)
LIMIT: Final = (
    f"({V1BETA2} ? self.?spec.?remediation.?triggerIf.?unhealthyLessThanOrEqualTo : "
    "self.?spec.?maxUnhealthy)"
)


def valid_limit(value: str, limit: LimitKind) -> str:
    """Return whether a value is a limit that its controller can use, in CEL."""
    percentage = (
        r"^0*(?:100|[0-9]{1,2})%$" if limit is LimitKind.CLUSTER_API else r"^(?:100|[0-9]{1,2})%$"
    )
    texts = f"{value}.matches({cel.text(percentage)})"
    if limit is LimitKind.MACHINE_API:
        texts += f" || ({value}.matches('^0*[0-9]{{1,10}}$') && int({value}) <= {MAX_INT32})"
    return (
        f"(type({value}) == int ? {value} >= 0 && {value} <= {MAX_INT32} : type({value}) == string "
        f"&& ({texts}))"
    )


def valid_time(value: str, schema: str = units.DURATION) -> str:
    """Return whether a value is a time that the controllers can use, in CEL.

    Cluster API has no such schema.
    """
    only_if = f"!{OF_CLUSTER_API}"
    durations = cel_durations.parsed(value, schema, only_if=only_if)
    return (
        f"({V1BETA2} ? type({value}) == int && {value} >= 0 && {value} <= {MAX_INT32} : "
        f"!{cel_durations.is_invalid(value, schema, only_if=only_if)} && {durations}.all(time, "
        "time >= 0))"
    )


_SELECTOR: Final = "self.?spec.?selector"
EMPTY_SELECTOR: Final = (
    f"(!({cel.present(_SELECTOR)}) || ({cel.is_map(_SELECTOR)} && "
    f"(!({cel.present(f'{_SELECTOR}.?matchLabels')}) || ({cel.is_map(f'{_SELECTOR}.?matchLabels')} "
    f"&& {cel.entries(f'{_SELECTOR}.?matchLabels')}.size() == 0)) && "
    f"(!({cel.present(f'{_SELECTOR}.?matchExpressions')}) || "
    f"(type({_SELECTOR}.?matchExpressions.orValue(null)) == list && "
    f"{cel.items(f'{_SELECTOR}.?matchExpressions')}.size() == 0))))"
)
"""Whether the selector selects everything, in CEL."""
