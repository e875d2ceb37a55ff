"""A NodeHealthCheck is disabled because a MachineHealthCheck exists.

**Why.** The built-in termination handler is the only MachineHealthCheck that the operator
tolerates. While another one exists, in any namespace and even paused, the operator disables every
NodeHealthCheck (ConflictingMachineHealthCheckDetected). Nodes that only this check covers are not
remediated.

**Fix.** Delete the MachineHealthCheck, or do not use NodeHealthChecks.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.rule import MHC, NHC, Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(NHC,),
    reads={MHC: ()},
    action=Action.WARN,
    event="RemediationLoop",
    sources=("medik8s/node-healthcheck-operator:internal/controller/mhc/checker.go#UpdateStatus",),
)
def check(nhc: Object, context: Context) -> Findings:
    conflicts = remediation_steps.conflicting(context.cluster)
    if conflicts:
        yield Finding(
            nhc.metadata["name"].path,
            "this check is disabled while these MachineHealthChecks exist, even if paused: "
            f"{names((mhc.full_name for mhc in conflicts), 80)}. Use only one of the two kinds.",
        )
