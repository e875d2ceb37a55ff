"""A node health check never takes a node for healthy again.

**Why.** A negative ``healthyDelay`` keeps the remediation of every node, taints included, until somebody confirms the
node by hand. Forgotten, it uses up the limit, node by node.

**Fix.** A delay of 0 or more; or annotate each recovered node with ``remediation.medik8s.io/manually-confirmed-healthy``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NHC
from virt_admit.model.objects import Object
from virt_admit.model.units import HEALTHY_DELAY, parse_duration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    delay = obj.at("spec", "healthyDelay")
    try:
        if delay.present and parse_duration(delay.value, HEALTHY_DELAY) < 0:
            yield Finding(
                delay.path,
                "negative: no node returns by itself; annotate recovered Nodes with "
                "remediation.medik8s.io/manually-confirmed-healthy, or write 0s or more",
            )
    except ValueError:
        return


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.WARN,
    check=check,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#healthydelay",),
)
