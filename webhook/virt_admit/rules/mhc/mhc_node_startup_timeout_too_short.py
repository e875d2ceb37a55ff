"""A MachineHealthCheck replaces machines before they can become nodes.

**Why.** A machine takes minutes to boot and to join the cluster. With a shorter time, the check deletes it and its
owner creates it again, in a loop. Cluster API drops fractions of a second: less than one second becomes 0, which turns
the start-up check off.

**Fix.** Write 10m, the default. Bare metal needs 20m or more. ``"0"`` turns the start-up check off.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from virt_admit.model.kinds import CAPI_MHC, MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.units import SECOND, format_duration
from virt_admit.rule import Action, Context, Finding, Rule, duration


@dataclass(frozen=True)
class Params:
    refused: int = duration("30s", "deny shorter times: the minimum of Cluster API")
    shortest: int = duration("5m", "warn about shorter times: half of the default")


def check(obj: Object, context: Context[Params]) -> Iterator[Finding]:
    view, params = context.cached(health_checks.view, obj), context.params
    time = view.known_startup_time()
    if time is None or not 0 < time < max(params.refused, params.shortest) or view.handler:
        return
    if view.kind is CAPI_MHC and time < SECOND:
        effect = "becomes 0 in Cluster API, which turns the start-up check off"
    else:
        effect = "is too short for a machine to become a node: machines would be deleted and created in a loop"
    preferred = ", preferably 10m" if params.shortest < health_checks.DEFAULT_STARTUP else ""
    yield Finding(
        view.startup.path,
        f"{format_duration(time)} {effect}. Use at least {format_duration(params.shortest)}{preferred}.",
        max_action=Action.DENY if time < params.refused else Action.WARN,
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    event="RemediationLoop",
    check=check,
    params=Params(),
    sources=(
        "kubernetes-sigs/cluster-api:core/webhooks/admission/machinehealthcheck.go",
        "kubernetes-sigs/cluster-api:api/core/v1beta2/conversion.go#ConvertToSeconds",
    ),
)
