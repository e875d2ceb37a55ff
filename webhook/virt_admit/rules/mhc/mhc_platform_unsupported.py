"""A MachineHealthCheck exists in a cluster without the Machine API.

**Why.** In a cluster that was installed with platform ``None`` the Machine API does not run, even
if machines were added later. The API server accepts the check, but the check never acts.

**Fix.** Use a NodeHealthCheck, for example with Self Node Remediation.
"""

from virt_admit.model.remediation import health_checks, machines
from virt_admit.rule import INFRASTRUCTURE, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC,),
    reads={INFRASTRUCTURE: ()},
    action=Action.WARN,
    sources=("Workload Availability, Machine health checks 6.3",),
)
def check(obj: Object, context: Context) -> Findings:
    if (
        not context.cached(health_checks.view, obj).handler
        and machines.platform(context.cluster) == "None"
    ):
        yield Finding(
            obj["spec"].path,
            "the Machine API does not run on platform None, so the check never acts. Use a "
            "NodeHealthCheck.",
            value="None",
        )
