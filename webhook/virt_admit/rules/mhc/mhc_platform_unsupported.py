"""A MachineHealthCheck exists in a cluster without the Machine API.

**Why.** In a cluster that was installed with platform ``None`` the Machine API does not run, even if machines were
added later. The API server accepts the check, but the check never acts.

**Fix.** Use a NodeHealthCheck, for example with Self Node Remediation.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import INFRASTRUCTURE, MHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks, machines
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    if not context.cached(health_checks.view, obj).handler and machines.platform(context.cluster) == "None":
        yield Finding(
            obj["spec"].path,
            "the Machine API does not run on platform None, so the check never acts. Use a NodeHealthCheck.",
            value="None",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC,),
    reads={INFRASTRUCTURE: ()},
    action=Action.WARN,
    check=check,
    sources=("Workload Availability, Machine health checks 6.3",),
)
