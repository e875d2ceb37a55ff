"""A health check refers to a remediation template that does not exist.

**Why.** The controllers create remediation requests from the template. Until it exists, a
NodeHealthCheck is disabled, and a MachineHealthCheck reports an error and remediates nothing. A
MachineHealthCheck ignores the namespace in the reference and uses its own.

**Fix.** Create the template first. For a MachineHealthCheck, create it in the same namespace.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import Step
from virt_admit.model.kubernetes.kinds import (
    CAPI_MHC,
    FAR_TEMPLATE,
    MDR_TEMPLATE,
    METAL3_TEMPLATE,
    MHC,
    NHC,
    SNR_TEMPLATE,
)
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Cluster, Context, Finding, Findings, Object, Unseen, rule


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    reads={SNR_TEMPLATE: (), FAR_TEMPLATE: (), MDR_TEMPLATE: (), METAL3_TEMPLATE: ()},
    action=Action.WARN,
    sources=(
        "openshift/machine-api-operator:pkg/util/external",
        "medik8s/node-healthcheck-operator:internal/controller/resources/templates.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    for step in remediation_steps.mentioned(view):
        try:
            yield from _check_template(step, context.cluster)
        except Unseen as unseen:
            yield unseen


def _check_template(step: Step, cluster: Cluster) -> Findings:
    reference = step.reference
    if not (
        reference["apiVersion"].text
        and step.kind_name
        and reference["name"].text
        and step.namespace
    ):
        return  # remediation-template-invalid reports this
    template = step.template(cluster)
    if template is None:
        namespace = reference["namespace"].text or ""
        ignored = (
            f" (namespace {namespace} is ignored)" if namespace not in ("", step.namespace) else ""
        )
        yield Finding(
            reference.path,
            f"{step.title} does not exist{ignored}, so nothing is remediated. Create it.",
        )
    elif not template.at("spec", "template").present:
        yield Finding(
            reference.path, f"{step.title} has no spec.template, so nothing is remediated. Add it."
        )
