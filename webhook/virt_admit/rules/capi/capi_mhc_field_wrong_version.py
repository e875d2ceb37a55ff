"""A MachineHealthCheck of Cluster API has a field of another version.

**Why.** Version v1beta2 has other names and places than v1beta1. The API server drops what its version does not know, so
the check watches less than it says, or nothing but the start-up. In a cluster nobody sees this any more.

**Fix.** Move the value to where the message says, or write the apiVersion that the fields belong to.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from virt_admit.model.kinds import CAPI_MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

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


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    newer = context.cached(health_checks.view, obj).time_key == "timeoutSeconds"
    for name, place in (_IN_V1BETA2 if newer else _IN_V1BETA1).items():
        field = obj["spec"][name]
        if field.present:
            yield Finding(field.path, f"is no field of {obj.version} and would be dropped; write spec.{place}")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CAPI_MHC,),
    action=Action.WARN,
    check=check,
    at_admission=False,
    sources=("kubernetes-sigs/cluster-api:core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml",),
)
