"""A health check has an incomplete or wrong reference to a remediation template.

**Why.** The controllers create a remediation request from the template: they remove ``Template``
from the end of its kind. This fails if the reference has no apiVersion, kind or name, or if the
kind does not end in ``Template``. A NodeHealthCheck is cluster-wide, so its reference needs a
namespace. Metal3 templates only work in ``openshift-machine-api``.

**Fix.** Write apiVersion, kind and name of an existing template. In a NodeHealthCheck also write
its namespace.
"""

from typing import Final

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import TEMPLATE
from virt_admit.model import cel, cel_selectors
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.kinds import CAPI_MHC, METAL3_TEMPLATE, MHC, NHC
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule, show

_METAL3_NAMESPACE: Final = "openshift-machine-api"

_TEMPLATE: Final = (
    f"({cel_checks.V1BETA2} ? self.?spec.?remediation.?templateRef : "
    "self.?spec.?remediationTemplate).orValue(null)"
)
_TEMPLATE_PATH: Final = (
    f"({cel_checks.V1BETA2} ? 'spec.remediation.templateRef' : 'spec.remediationTemplate')"
)
_REFERENCES: Final = (
    f"({cel_checks.HANDLER} ? [] : ([{{'path': dyn({_TEMPLATE_PATH}), 'value': dyn({_TEMPLATE})}}]"
    f" + (self.kind == '{NHC.kind}' ? {cel.items('self.?spec.?escalatingRemediations')} : [])"
    ".map(step, {'path': dyn('spec.escalatingRemediations.remediationTemplate'),"
    " 'value': dyn(type(step) == map ? step.?remediationTemplate.orValue(null) : null)}))"
    ".filter(reference, reference.value != null))"
)
"""Every reference to a template: ``path`` and ``value``, in CEL."""


def _value(key: str) -> str:
    return f"(type(item.value) == map ? item.value.?{key}.orValue(null) : null)"


def _has(reference: str, key: str) -> str:
    """Return whether a reference has a text that is not empty at the key, in CEL."""
    value = f"{reference}.value"
    return f"(type({value}) == map && {cel.is_text(f'{value}.?{key}')} && {value}.{key} != '')"


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    denials=(
        *(
            cel.Denial(
                each=_REFERENCES,
                when=f"!{_has('item', key)}",
                path=f"item.path + '.{key}'",
                message=(
                    f"'the reference has no {key}, so nothing is remediated. Write the "
                    f"template\\'s {key}.'"
                ),
                value=_value(key),
            )
            for key in ("apiVersion", "kind", "name")
        ),
        cel.Denial(
            each=_REFERENCES,
            when=f"{_has('item', 'kind')}"
            f" && (item.value.kind == '{TEMPLATE}' || !item.value.kind.endsWith('{TEMPLATE}'))",
            path="item.path + '.kind'",
            message=(
                f"{cel.shown('item.value.kind')} + ' is not a template kind, so nothing is "
                f"remediated. ' + 'Write a kind that ends in {TEMPLATE}.'"
            ),
            value="item.value.kind",
        ),
        cel.Denial(
            each=_REFERENCES,
            when=f"{_has('item', 'name')} && !{cel_selectors.is_dns_name('item.value.name')}",
            path="item.path + '.name'",
            message=f"'no object can be called ' + {cel.shown('item.value.name')}"
            " + ', so nothing is remediated. Write the template\\'s name.'",
            value="item.value.name",
        ),
        cel.Denial(
            each=_REFERENCES,
            when=f"self.kind == '{NHC.kind}' && !{_has('item', 'namespace')}",
            path="item.path + '.namespace'",
            message=(
                "'a NodeHealthCheck is cluster-wide, so nothing is remediated without the "
                "template\\'s namespace. ' + 'Write it.'"
            ),
            value=_value("namespace"),
        ),
        cel.Denial(
            each=_REFERENCES,
            when=(
                f"self.kind == '{NHC.kind}' && {_has('item', 'namespace')} && "
                f"{_has('item', 'kind')} && item.value.kind == '{METAL3_TEMPLATE.kind}' && "
                f"item.value.namespace != '{_METAL3_NAMESPACE}'"
            ),
            path="item.path + '.namespace'",
            message=(
                f"'Metal3 templates only work in namespace {_METAL3_NAMESPACE}. Move the template "
                "there.'"
            ),
            value="item.value.namespace",
        ),
    ),
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
                    reference[key],
                    f"the reference has no {key}, so nothing is remediated. Write the template's "
                    f"{key}.",
                )
        if kind and (kind == TEMPLATE or not kind.endswith(TEMPLATE)):
            yield Finding(
                reference["kind"].path,
                f"{show(kind)} is not a template kind, so nothing is remediated. Write a kind that "
                f"ends in {TEMPLATE}.",
            )
        name = reference["name"]
        if name.text and not selectors.is_dns_name(name.text):
            yield Finding(
                name.path,
                f"no object can be called {show(name.text)}, so nothing is remediated. Write the "
                "template's name.",
            )
        if view.kind is NHC:
            yield from _check_namespace(reference)


def _check_namespace(reference: Field) -> Findings:
    namespace = reference["namespace"]
    if not namespace.text:
        yield _missing(
            namespace,
            "a NodeHealthCheck is cluster-wide, so nothing is remediated without the template's "
            "namespace. Write it.",
        )
    elif reference["kind"].text == METAL3_TEMPLATE.kind and namespace.text != _METAL3_NAMESPACE:
        yield Finding(
            namespace.path,
            f"Metal3 templates only work in namespace {_METAL3_NAMESPACE}. Move the template "
            "there.",
        )


def _missing(field: Field, message: str) -> Finding:
    return Finding(field.path, message, cause=Cause.REQUIRED)
