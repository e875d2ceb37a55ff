"""Two node health checks select the same node.

**Why.** Each counts its own limit and calls its own remediators: a sick node is rebooted by one while the other
replaces it, and together they may take more nodes than either allows.

**Fix.** Selectors that share no node.
"""

from collections.abc import Iterator

from webhook.model import health, remediation
from webhook.model.kinds import NHC, NODE
from webhook.model.objects import Object
from webhook.model.texts import names
from webhook.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    nhc = context.fact(health.view, obj)
    for other, nodes in remediation.overlaps(nhc, context.cluster):
        yield Finding(
            nhc.selector_field.path,
            f"NodeHealthCheck {other.name} selects the same nodes ({names(sorted(nodes), 60)}) and would remediate "
            "them, too; select each node once",
            value=other.name,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads=(NHC, NODE),
    action=Action.WARN,
    check=check,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#selector",),
)
