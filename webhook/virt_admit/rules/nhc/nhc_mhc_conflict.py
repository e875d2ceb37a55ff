"""A node health check next to a MachineHealthCheck.

**Why.** As soon as there is any MachineHealthCheck but the built-in termination handler, in whatever namespace, paused
or not, the operator disables every NodeHealthCheck (ConflictingMachineHealthCheckDetected). Nodes that only this check
covers are not remediated.

**Fix.** Remove the MachineHealthCheck, or do without NodeHealthChecks.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import MHC, NHC
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.model.remediation import plan
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(nhc: Object, context: Context[NoParams]) -> Iterator[Finding]:
    others = plan.conflicting(context.cluster)
    if others:
        yield Finding(
            nhc.metadata["name"].path,
            "this check is disabled as long as there are MachineHealthChecks, paused ones too: "
            f"{names((mhc.full_name for mhc in others), 80)}; use one kind or the other",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads={MHC: ()},
    action=Action.WARN,
    event="RemediationLoop",
    check=check,
    sources=("medik8s/node-healthcheck-operator:internal/controller/mhc/checker.go#UpdateStatus",),
)
