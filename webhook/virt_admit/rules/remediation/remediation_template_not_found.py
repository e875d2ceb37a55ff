"""A health check refers to a remediation template that does not exist.

**Why.** Without the template no remediation request can be made. A NodeHealthCheck is disabled until it exists; a
MachineHealthCheck reports an error and remediates nothing. MachineHealthChecks look in their own namespace, whatever
the reference says.

**Fix.** Create the template first; that of a MachineHealthCheck next to it.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import CAPI_MHC, FAR_TEMPLATE, MDR_TEMPLATE, METAL3_TEMPLATE, MHC, NHC, SNR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, plan
from virt_admit.model.remediation.plan import Step
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    for step in plan.mentioned(view):
        try:
            yield from _judge(step, context.cluster)
        except Unseen as blind:
            yield blind


def _judge(step: Step, cluster: Cluster) -> Iterator[Finding]:
    reference = step.reference
    if not (reference["apiVersion"].text and step.kind_name and reference["name"].text and step.namespace):
        return  # another rule's
    template = step.template(cluster)
    if template is None:
        said = reference["namespace"].text or ""
        elsewhere = f"; its namespace {said} is ignored" if said not in ("", step.namespace) else ""
        yield Finding(reference.path, f"there is no {step.title}{elsewhere}: nothing is remediated until there is one")
    elif not template.at("spec", "template").present:
        yield Finding(reference.path, f"{step.title} has no spec.template: nothing is remediated")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    reads={SNR_TEMPLATE: (), FAR_TEMPLATE: (), MDR_TEMPLATE: (), METAL3_TEMPLATE: ()},
    action=Action.WARN,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/util/external",
        "medik8s/node-healthcheck-operator:internal/controller/resources/templates.go",
    ),
)
