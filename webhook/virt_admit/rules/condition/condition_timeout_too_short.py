"""A health check remediates nodes after an interruption that is too short to be a failure.

**Why.** A node that stops reporting becomes ``Ready=Unknown`` after the grace period of the node
controller. One late report is enough for that. A check that waits less than one more reporting
period reboots or replaces healthy machines again and again. The worker latency profiles of
OpenShift lengthen these periods.

**Fix.** Wait 300s, or at least the time that the message names.
"""

from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.remediation import timeline
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import CAPI_MHC, CONFIG_NODE, MHC, NHC
from virt_admit.model.kubernetes.units import MINUTE, format_duration
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, Findings, Object, duration, rule

_USUAL: Final = 5 * MINUTE


@dataclass(frozen=True)
class Params:
    refused: int = duration("10s", "deny shorter times: one reporting period of the kubelet")
    shortest: int = duration(
        "60s", "warn about shorter times: the grace period of 50 s plus one period of 10 s"
    )
    medium: int = duration(
        "140s", "the same for MediumUpdateAverageReaction: 2 min plus one period of 20 s"
    )
    low: int = duration(
        "300s",
        "the same for LowUpdateSlowReaction: 5 min, without a further period so that the usual 300 "
        "s passes",
    )


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    reads={CONFIG_NODE: ()},
    action=Action.DENY,
    event="RemediationLoop",
    params=Params(),
    sources=(
        "Workload Availability, Machine health checks 6.3.1",
        "Workload Availability, Fencing and remediation 1.7.1",
        "openshift/api:config/v1/types_node.go",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    params = context.params
    for condition in context.cached(health_checks.view, obj).entries():
        if condition.type != "Ready" or condition.status not in ("False", "Unknown"):
            continue
        time = condition.known_nanoseconds()
        if time is None or time >= max(params.shortest, params.medium, params.low):
            continue
        shortest = _shortest(context.cluster, params)
        if time < max(params.refused, shortest):
            preferred = ", preferably 5m" if shortest < _USUAL else ""
            yield Finding(
                condition.time.path,
                f"{format_duration(time)} is too short to tell a brief interruption from a "
                "failure: healthy nodes would be remediated in a loop. Use at least "
                f"{format_duration(shortest)}{preferred}.",
                max_action=Action.DENY if time < params.refused else Action.WARN,
            )


def _shortest(cluster: Cluster, params: Params) -> int:
    """Return the shortest safe time for the cluster's latency profile;
    an unseen profile counts as the default.
    """
    try:
        profile = timeline.latency_profile(cluster)
    except Unseen:
        return params.shortest
    slower = {"MediumUpdateAverageReaction": params.medium, "LowUpdateSlowReaction": params.low}
    return max(params.shortest, slower.get(profile, 0))
