"""A health check has an incomplete or wrong reference to a remediation template.

**Why.** The controllers create a remediation request from the template: they remove ``Template`` from the end of its kind.
This fails if the reference has no apiVersion, kind or name, or if the kind does not end in ``Template``. A NodeHealthCheck
is cluster-wide, so its reference needs a namespace. Metal3 templates only work in ``openshift-machine-api``.

**Fix.** Write apiVersion, kind and name of an existing template. In a NodeHealthCheck also write its namespace.
"""

from typing import Final

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import TEMPLATE
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.kinds import CAPI_MHC, METAL3_TEMPLATE, MHC, NHC
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule, show

_METAL3_NAMESPACE: Final = "openshift-machine-api"


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
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
        reference, kind = step.reference, step.kind_name
        for key in ("apiVersion", "kind", "name"):
            if not reference[key].text:
                yield _missing(
                    reference[key], f"the reference has no {key}, so nothing is remediated. Write the template's {key}."
                )
        if kind and (kind == TEMPLATE or not kind.endswith(TEMPLATE)):
            yield Finding(
                reference["kind"].path,
                f"{show(kind)} is not a template kind, so nothing is remediated. Write a kind that ends in {TEMPLATE}.",
            )
        name = reference["name"]
        if name.text and not selectors.is_dns_name(name.text):
            yield Finding(
                name.path,
                f"no object can be called {show(name.text)}, so nothing is remediated. Write the template's name.",
            )
        if view.kind is NHC:
            yield from _check_namespace(reference)


def _check_namespace(reference: Field) -> Findings:
    namespace = reference["namespace"]
    if not namespace.text:
        yield _missing(
            namespace,
            "a NodeHealthCheck is cluster-wide, so nothing is remediated without the template's namespace. Write it.",
        )
    elif reference["kind"].text == METAL3_TEMPLATE.kind and namespace.text != _METAL3_NAMESPACE:
        yield Finding(
            namespace.path, f"Metal3 templates only work in namespace {_METAL3_NAMESPACE}. Move the template there."
        )


def _missing(field: Field, message: str) -> Finding:
    return Finding(field.path, message, cause=Cause.REQUIRED)
