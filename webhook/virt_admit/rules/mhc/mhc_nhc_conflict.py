"""A MachineHealthCheck disables every NodeHealthCheck of the cluster.

**Why.** The Node Health Check operator tolerates no MachineHealthCheck except the built-in
termination handler. While another one exists, in any namespace and even paused, it disables all
NodeHealthChecks.

**Fix.** Use one of the two kinds. To move from NodeHealthCheck to MachineHealthCheck, delete the
NodeHealthChecks afterwards.
"""

from virt_admit.model.kubernetes.kinds import MHC, NHC
from virt_admit.model.kubernetes.reads import NAME
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, gather, names, rule


@rule(
    kinds=(MHC,),
    reads={NHC: NAME},
    action=Action.WARN,
    event="RemediationLoop",
    sources=("medik8s/node-healthcheck-operator:internal/controller/mhc/checker.go#UpdateStatus",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    disabled, unseen = gather(nhc.name for nhc in context.cluster.list(NHC))
    if disabled:
        yield Finding(
            obj.metadata["name"].path,
            f"this check disables every NodeHealthCheck ({names(disabled, 60)}), even while it is "
            "paused. Use only one of the two kinds.",
            value=view.conditions.value,
        )
    elif unseen:
        yield Unseen(unseen)
