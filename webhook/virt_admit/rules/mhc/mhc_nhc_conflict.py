"""A MachineHealthCheck switches off every NodeHealthCheck of the cluster.

**Why.** The Node Health Check operator tolerates no MachineHealthCheck besides the termination handler that the cluster
ships: as long as another one exists, in any namespace and even paused, all NodeHealthChecks are disabled.

**Fix.** Use one of both. When you move from NodeHealthCheck to MachineHealthCheck, delete the NodeHealthChecks afterwards.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen, gather
from virt_admit.model.kinds import MHC, NHC
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.model.reads import NAME
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    victims, unseen = gather(nhc.name for nhc in context.cluster.list(NHC))
    if victims:
        yield Finding(
            obj.metadata["name"].path,
            f"switches off every NodeHealthCheck of the cluster ({names(victims, 60)}), paused or not; use one of both",
            value=view.conditions.value,
        )
    elif unseen:
        yield Unseen(unseen)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC,),
    reads={NHC: NAME},
    action=Action.WARN,
    event="RemediationLoop",
    check=check,
    sources=("medik8s/node-healthcheck-operator:internal/controller/mhc/checker.go#UpdateStatus",),
)
