"""A MachineHealthCheck waits hours for a machine that never becomes a node.

**Why.** Until then the cluster lacks a node, and the check does not replace the machine. The alert
MachineWithNoRunningPhase fires after an hour.

**Fix.** Write 10m, the default. Bare metal needs 20m to 40m.
"""

from dataclasses import dataclass

from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, Findings, Object, duration, rule


@dataclass(frozen=True)
class Params:
    longest: int = duration("2h", "warn about longer times")


@rule(
    kinds=(MHC, CAPI_MHC),
    action=Action.WARN,
    params=Params(),
    sources=(
        "openshift/machine-api-operator:install/0000_90_machine-api-operator_04_alertrules.yaml",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    view = context.cached(health_checks.view, obj)
    time = view.known_startup_time()
    if time is not None and time > context.params.longest and not view.handler:
        yield Finding(
            view.startup.path,
            f"a machine that never becomes a node is replaced only after {format_duration(time)}. "
            "Use 10m to 40m.",
        )
