"""A node health check next to a MachineHealthCheck.

**Why.** As soon as there is any MachineHealthCheck but the built-in termination handler, in whatever namespace, paused
or not, the operator disables every NodeHealthCheck (ConflictingMachineHealthCheckDetected). Nodes that only this check
covers are not remediated.

**Fix.** Remove the MachineHealthCheck, or do without NodeHealthChecks.
"""

from collections.abc import Iterator

from webhook.model import health
from webhook.model.cluster import Unseen
from webhook.model.health import TERMINATING
from webhook.model.kinds import MHC, NHC
from webhook.model.objects import Object
from webhook.model.texts import names
from webhook.rule import Action, Context, Finding, NoParams, Rule


def check(nhc: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    found: list[Object] = []
    blind: Unseen | None = None
    try:
        found.extend(context.cluster.list(MHC))
    except Unseen as unseen:
        blind = unseen
    custom = [mhc for mhc in found if not _only_terminating(mhc)]
    if custom or len(found) > 1:
        culprits = names((mhc.full_name for mhc in custom or found), 80)
        yield Finding(
            nhc.metadata["name"].path,
            f"disabled as long as there are MachineHealthChecks, paused ones too: {culprits}; use one kind or the other",
        )
    elif blind:
        yield blind


def _only_terminating(mhc: Object) -> bool:
    """Whether it has exactly one condition, and that is Terminating."""
    return [condition.type for condition in health.view(mhc).entries] == [TERMINATING]


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads=(MHC,),
    action=Action.WARN,
    check=check,
    sources=("medik8s/node-healthcheck-operator:internal/controller/mhc/checker.go#UpdateStatus",),
)
