"""A NodeHealthCheck never marks a node as healthy again.

**Why.** A negative ``healthyDelay`` keeps the remediation of every node, including its taints,
until an administrator confirms the node manually. Nodes that are never confirmed use up the limit
one by one.

**Fix.** Use a delay of 0 or more, or annotate each recovered node with
``remediation.medik8s.io/manually-confirmed-healthy``.
"""

from virt_admit.model.kubernetes.kinds import NHC
from virt_admit.model.kubernetes.units import HEALTHY_DELAY, format_duration, parse_duration
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    action=Action.WARN,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#healthydelay",),
)
def check(obj: Object, _context: Context) -> Findings:
    delay = obj.at("spec", "healthyDelay")
    try:
        nanoseconds = parse_duration(delay.value, HEALTHY_DELAY) if delay.present else 0
        if nanoseconds < 0:
            yield Finding(
                delay.path,
                f"the negative delay {format_duration(nanoseconds)} keeps recovered nodes in "
                "remediation. Use 0s or more, or annotate each recovered Node with "
                "remediation.medik8s.io/manually-confirmed-healthy.",
            )
    except ValueError:
        return
