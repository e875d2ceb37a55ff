"""Fields of a Cluster API MachineHealthCheck that belong to another API version than the one that
the object names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.remediation import health_checks

_IN_V1BETA2: Final[Mapping[str, str]] = {
    "unhealthyConditions": "checks.unhealthyNodeConditions",
    "unhealthyNodeConditions": "checks.unhealthyNodeConditions",
    "unhealthyMachineConditions": "checks.unhealthyMachineConditions",
    "nodeStartupTimeout": "checks.nodeStartupTimeoutSeconds",
    "nodeStartupTimeoutSeconds": "checks.nodeStartupTimeoutSeconds",
    "maxUnhealthy": "remediation.triggerIf.unhealthyLessThanOrEqualTo",
    "unhealthyRange": "remediation.triggerIf.unhealthyInRange",
    "remediationTemplate": "remediation.templateRef",
}
_IN_V1BETA1: Final[Mapping[str, str]] = {
    "checks": "unhealthyConditions and nodeStartupTimeout",
    "remediation": "maxUnhealthy, unhealthyRange and remediationTemplate",
}


def foreign_fields(obj: Object) -> Iterator[tuple[Field, str]]:
    """Yield the fields of the other version,
    each with the fields of this version that replace it.
    """
    newer = health_checks.view(obj).time_key == "timeoutSeconds"
    for name, replacement in (_IN_V1BETA2 if newer else _IN_V1BETA1).items():
        field = obj["spec"][name]
        if field.present:
            yield field, f"spec.{replacement}"
