"""A MachineHealthCheck of Cluster API reacts to a condition that it sets itself.

**Why.** ``Ready`` and ``Available`` of a Machine depend on the health check, and the others are its own. To judge by them
would go round in circles, so the schema refuses them. Only ``check`` can meet this.

**Fix.** For the state of the node list a node condition; for the machine a condition of its provider or control plane.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import CAPI_MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

_FORBIDDEN: Final = frozenset(("Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated"))


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    for entry in context.cached(health_checks.view, obj).machine_conditions.items():
        if entry["type"].text in _FORBIDDEN:
            yield Finding(
                entry["type"].path,
                f"{entry['type'].text} of a Machine depends on the health check itself; list it for the node, "
                "or another condition of the machine",
                cause=Cause.FORBIDDEN,
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    check=check,
    sources=("kubernetes-sigs/cluster-api:api/core/v1beta2/machinehealthcheck_types.go",),
)
