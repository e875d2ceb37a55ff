"""A MachineHealthCheck is outside the namespace that its controller watches.

**Why.** The controllers of the Machine API watch one namespace. The API server accepts a check in
another namespace, but the check never acts.

**Fix.** Create it in ``openshift-machine-api``, where the Machines are.
"""

from dataclasses import dataclass

from virt_admit.model import cel
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import MHC, Action, Context, Finding, Findings, Object, param, rule


@dataclass(frozen=True)
class Params:
    namespace: str = param(
        "openshift-machine-api", "the namespace that the controllers of the Machine API watch"
    )


@rule(
    kinds=(MHC,),
    action=Action.DENY,
    params=Params(),
    denials=(
        cel.Denial(
            when=(
                "self.metadata.?namespace.orValue('') != '' && self.metadata.namespace != "
                f"params.namespace && !({cel_checks.HANDLER})"
            ),
            path="'metadata.namespace'",
            message=(
                "'no controller watches MachineHealthChecks in this namespace, so it would never "
                "act. Create it in ' + params.namespace + '.'"
            ),
            value="self.metadata.namespace",
        ),
    ),
    sources=("openshift/machine-api-operator:pkg/operator/sync.go",),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    watched = context.params.namespace
    if (
        obj.namespace
        and obj.namespace != watched
        and not context.cached(health_checks.view, obj).handler
    ):
        yield Finding(
            obj.metadata["namespace"].path,
            f"no controller watches MachineHealthChecks in namespace {obj.namespace}, so it would "
            f"never act. Create it in {watched}.",
            value=obj.namespace,
        )
