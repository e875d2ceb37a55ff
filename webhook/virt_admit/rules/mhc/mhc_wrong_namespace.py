"""A MachineHealthCheck is outside the namespace that its controller watches.

**Why.** The controllers of the Machine API watch one namespace. The API server accepts a check in another namespace,
but the check never acts.

**Fix.** Create it in ``openshift-machine-api``, where the Machines are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from virt_admit.model.kubernetes.kinds import MHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, Rule, param


@dataclass(frozen=True)
class Params:
    namespace: str = param("openshift-machine-api", "the namespace that the controllers of the Machine API watch")


def check(obj: Object, context: Context[Params]) -> Iterator[Finding]:
    watched = context.params.namespace
    if obj.namespace and obj.namespace != watched and not context.cached(health_checks.view, obj).handler:
        yield Finding(
            obj.metadata["namespace"].path,
            f"no controller watches MachineHealthChecks in namespace {obj.namespace}, so it would never act. "
            f"Create it in {watched}.",
            value=obj.namespace,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC,),
    action=Action.DENY,
    check=check,
    params=Params(),
    sources=("openshift/machine-api-operator:pkg/operator/sync.go",),
)
