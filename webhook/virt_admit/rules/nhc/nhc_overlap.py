"""Two node health checks select the same node.

**Why.** Each counts its own limit and calls its own remediators: a sick node is rebooted by one while the other
replaces it, and together they may take more nodes than either allows.

**Fix.** Selectors that share no node.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NHC, NODE
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, watching
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    nhc = context.cached(health_checks.view, obj)
    mine = context.cached(watching.selected, obj)
    for rival in watching.rivals(nhc, context.cluster):
        shared = mine.among(rival.selection.positions)
        yield Finding(
            nhc.selector_field.path,
            f"NodeHealthCheck {rival.check.obj.name} selects the same nodes "
            f"({names((node.name for node in shared.objects), 60)}) and would remediate them, too; "
            "select each node once",
            value=rival.check.obj.name,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads={NHC: (), NODE: ("metadata.labels",)},
    action=Action.WARN,
    check=check,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#selector",),
)
