"""A Cluster API MachineHealthCheck remediates machines that are still being created.

**Why.** Conditions such as ``InfrastructureReady`` are not True until the provider has created the
machine. The check evaluates Machine conditions before the node exists. With a short time-out it
deletes each machine while it is being created, and its owner creates it again, in a loop.

**Fix.** Use a time-out that is longer than the creation of a machine, for example 600 seconds. The
start-up timeout already covers machines that never become nodes.
"""

from dataclasses import dataclass
from typing import Final

from virt_admit.model.kubernetes.kinds import CAPI_MHC
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, Findings, Object, duration, rule

_LATER_TRUE: Final = frozenset(
    ("InfrastructureReady", "BootstrapConfigReady", "NodeReady", "NodeHealthy")
)
"""Machine conditions that become True while a machine is created."""


@dataclass(frozen=True)
class Params:
    shortest: int = duration("5m", "warn about shorter times: machines take minutes to be created")


@rule(
    kinds=(CAPI_MHC,),
    action=Action.WARN,
    event="RemediationLoop",
    params=Params(),
    sources=(
        (
            "kubernetes-sigs/cluster-api:internal/controllers/machinehealthcheck/"
            "machinehealthcheck_targets.go#needsRemediation"
        ),
        "kubernetes-sigs/cluster-api:internal/controllers/machine/machine_controller_status.go",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    shortest = context.params.shortest
    for condition in context.cached(health_checks.view, obj).machine_entries():
        if condition.type not in _LATER_TRUE or condition.status not in ("False", "Unknown"):
            continue
        time = condition.known_nanoseconds()
        if time is not None and time < shortest:
            yield Finding(
                condition.time.path,
                f"{condition.type} is {condition.status} while a machine is being created: after "
                f"{format_duration(time)} the check deletes each new machine, in a loop. Use 600.",
                value=(condition.type, condition.status, time),
            )
