"""A NodeHealthCheck is disabled because a MachineHealthCheck exists.

**Why.** The built-in termination handler is the only MachineHealthCheck that the operator tolerates. While another one
exists, in any namespace and even paused, the operator disables every NodeHealthCheck
(ConflictingMachineHealthCheckDetected). Nodes that only this check covers are not remediated.

**Fix.** Delete the MachineHealthCheck, or do not use NodeHealthChecks.
"""

from collections.abc import Iterator

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.kubernetes.kinds import MHC, NHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(nhc: Object, context: Context[NoParams]) -> Iterator[Finding]:
    conflicts = remediation_steps.conflicting(context.cluster)
    if conflicts:
        yield Finding(
            nhc.metadata["name"].path,
            "this check is disabled while these MachineHealthChecks exist, even if paused: "
            f"{names((mhc.full_name for mhc in conflicts), 80)}. Use only one of the two kinds.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads={MHC: ()},
    action=Action.WARN,
    event="RemediationLoop",
    check=check,
    sources=("medik8s/node-healthcheck-operator:internal/controller/mhc/checker.go#UpdateStatus",),
)
