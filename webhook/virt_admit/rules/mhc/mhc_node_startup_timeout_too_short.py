"""A MachineHealthCheck remediates machines before they can become nodes.

**Why.** A machine takes minutes to boot and to join the cluster. With a shorter time, the check
deletes it and its owner creates it again, in a loop. A check with a remediation template or with
the annotation ``external-baremetal`` instead reboots hosts that are still starting. Cluster API
drops fractions of a second: less than one second becomes 0, which turns the start-up check off.

A bare metal host tests its hardware at each start and is often provisioned again, so even the
default of 10 minutes is too short for it, unless two machines took clearly less. virt-admit knows
bare metal by the platform, by instance types such as ``c5.metal``, and by the providers Metal3 and
Tinkerbell. The time is also too short if at least half of the machines took longer. Events tell of
a loop: a check of Cluster API marked new machines, one round after the other. A machine that joins
at that moment leaves a Node without a Machine; node-not-reporting names it.

**Fix.** Write 10m, the default. Bare metal needs 20m or more, and always more than the slowest
machine took. If machines never join, first see why. ``"0"`` turns the start-up check off.
"""

from dataclasses import dataclass

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC
from virt_admit.model.kubernetes.units import SECOND, format_duration
from virt_admit.model.messages import capital
from virt_admit.model.remediation import health_checks, machine_starts
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import Action, Context, Finding, Findings, Object, cut, duration, rule


@dataclass(frozen=True)
class Params:
    refused: int = duration("30s", "deny shorter times: the minimum of Cluster API")
    shortest: int = duration("5m", "warn about shorter times: half of the default")
    bare_metal: int = duration(
        "20m", "warn about shorter times on bare metal, where a host boots for minutes"
    )


@rule(
    kinds=(MHC, CAPI_MHC),
    reads=machine_starts.SHORT_READS,
    metadata=(health_checks.STRATEGY,),
    action=Action.DENY,
    event="RemediationLoop",
    params=Params(),
    sources=(
        "kubernetes-sigs/cluster-api:core/webhooks/admission/machinehealthcheck.go",
        "kubernetes-sigs/cluster-api:api/core/v1beta2/conversion.go#ConvertToSeconds",
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#remediate"
        ),
        (
            "openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/"
            "actuator.go#remediateIfNeeded"
        ),
        "openshift/managed-cluster-config:deploy/osd-machine-api",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    view, params = context.cached(health_checks.view, obj), context.params
    time = view.known_startup_time()
    if time is None or time <= 0 or view.handler:
        return
    if time < max(params.refused, params.shortest):
        yield _too_short(view, time, params)
        return
    short = machine_starts.short_start(obj, context.cluster, params.bare_metal)
    if short is not None:
        effect = ", in a loop" if short.seen else f": {_consequence(view)}"
        yield Finding(
            view.startup.path,
            f"{short.words}{effect}. "
            f"{capital(f'{short.doubt}use at least {format_duration(short.enough)}.')}",
            value=time,
            max_action=Action.WARN,
        )


def _too_short(view: HealthCheck, time: int, params: Params) -> Finding:
    if view.kind is CAPI_MHC and time < SECOND:
        effect = "becomes 0 in Cluster API, which turns the start-up check off"
    else:
        effect = f"is too short for a machine to become a node: {_consequence(view)}"
    preferred = ", preferably 10m" if params.shortest < health_checks.DEFAULT_STARTUP else ""
    return Finding(
        view.startup.path,
        f"{format_duration(time)} {effect}. Use at least "
        f"{format_duration(params.shortest)}{preferred}.",
        max_action=Action.DENY if time < params.refused else Action.WARN,
    )


def _consequence(view: HealthCheck) -> str:
    """Return what the check does to a machine that has no node in time
    (machinehealthcheck_controller.go#remediate).
    """
    if view.template.present:
        (step,) = remediation_steps.steps(view)
        return f"{cut(step.remediator, 40)} would act on machines that are still starting"
    if view.external:
        return "hosts would be power-cycled while they are still starting"
    return "machines would be deleted and created in a loop"
