"""A health check refers to a remediation template in a way that can never work.

**Why.** The controllers make a remediation request of the template: they cut ``Template`` off its kind. A reference
without apiVersion, kind or name, or to a kind that does not end in ``Template``, gives none. A NodeHealthCheck has no
namespace of its own, so it cannot guess that of the template; Metal3's templates work from ``openshift-machine-api``
only.

**Fix.** Write apiVersion, kind, name, and in a NodeHealthCheck the namespace of an existing template.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import CAPI_MHC, METAL3_TEMPLATE, MHC, NHC
from virt_admit.model.objects import Field, Object
from virt_admit.model.remediation import health_checks, plan
from virt_admit.model.remediation.plan import TEMPLATE
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

_METAL3_NAMESPACE: Final = "openshift-machine-api"


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    for step in plan.mentioned(view):
        reference, kind = step.reference, step.kind_name
        for key in ("apiVersion", "kind", "name"):
            if not reference[key].text:
                yield _missing(reference[key], f"nothing is remediated without the template's {key}; write it")
        if kind and (kind == TEMPLATE or not kind.endswith(TEMPLATE)):
            yield Finding(
                reference["kind"].path,
                f"{show(kind)} is no template's kind, which ends in {TEMPLATE}: nothing is remediated; write that",
            )
        if view.kind is NHC:
            yield from _judge_namespace(reference)


def _judge_namespace(reference: Field) -> Iterator[Finding]:
    namespace = reference["namespace"]
    if not namespace.text:
        yield _missing(
            namespace, "a NodeHealthCheck has no namespace, so it cannot guess that of the template; write it"
        )
    elif reference["kind"].text == METAL3_TEMPLATE.kind and namespace.text != _METAL3_NAMESPACE:
        yield Finding(
            namespace.path, f"templates of Metal3 work from namespace {_METAL3_NAMESPACE} only; move it there"
        )


def _missing(field: Field, message: str) -> Finding:
    return Finding(field.path, message, cause=Cause.REQUIRED)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/util/external",
        "medik8s/node-healthcheck-operator:internal/controller/resources/templates.go",
    ),
)
