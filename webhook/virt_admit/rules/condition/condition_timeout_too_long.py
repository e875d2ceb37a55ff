"""A health check waits more than an hour before it remediates a failed node.

**Why.** Until then KubeVirt cannot start the node's virtual machines elsewhere, so they stay down
at least that long.

**Fix.** Write 300s. Clusters on slow hardware use up to 16 minutes.
"""

from dataclasses import dataclass

from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, Findings, Object, duration, rule


@dataclass(frozen=True)
class Params:
    longest: int = duration("1h", "warn about longer times")


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.WARN,
    params=Params(),
    sources=("Workload Availability, Machine health checks 6.3.1",),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    view = context.cached(health_checks.view, obj)
    for condition in view.entries():
        time = condition.known_nanoseconds() if condition.type == "Ready" else None
        if time is not None and time > context.params.longest:
            yield Finding(
                condition.time.path,
                f"VMs of a failed node stay down for at least {format_duration(time)}. "
                f"Use a shorter time such as {view.usual_time}.",
            )
