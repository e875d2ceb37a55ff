"""A Cluster API MachineHealthCheck uses a field of another API version.

**Why.** Version v1beta2 has other field names and paths than v1beta1. The API server drops fields that the version does
not have, so the check watches less than written. The dropped fields do not appear in the cluster.

**Fix.** Move the value to the field that the message names, or use the apiVersion that has these fields.
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
    for name, replacement in (_IN_V1BETA2 if newer else _IN_V1BETA1).items():
        field = obj["spec"][name]
        if field.present:
            yield Finding(
                field.path, f"not a field of {obj.version}: the API server would drop it. Use spec.{replacement}."
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CAPI_MHC,),
    action=Action.WARN,
    check=check,
    at_admission=False,
    sources=("kubernetes-sigs/cluster-api:core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml",),
)
