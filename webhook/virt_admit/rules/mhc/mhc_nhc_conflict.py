"""A MachineHealthCheck disables every NodeHealthCheck of the cluster.

**Why.** The Node Health Check operator tolerates no MachineHealthCheck except the built-in termination handler. While
another one exists, in any namespace and even paused, it disables all NodeHealthChecks.

**Fix.** Use one of the two kinds. To move from NodeHealthCheck to MachineHealthCheck, delete the NodeHealthChecks
afterwards.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.cluster import Unseen, gather
from virt_admit.model.kubernetes.kinds import MHC, NHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME
from virt_admit.model.messages import names
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    disabled, unseen = gather(nhc.name for nhc in context.cluster.list(NHC))
    if disabled:
        yield Finding(
            obj.metadata["name"].path,
            f"this check disables every NodeHealthCheck ({names(disabled, 60)}), even while it is paused. "
            "Use only one of the two kinds.",
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
