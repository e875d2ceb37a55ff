"""A health check refers to a remediation template that does not exist.

**Why.** Without the template no remediation request can be made. A NodeHealthCheck is disabled until it exists; a
MachineHealthCheck reports an error and remediates nothing. MachineHealthChecks look in their own namespace, whatever
the reference says.

**Fix.** Create the template first; that of a MachineHealthCheck next to it.
"""

from collections.abc import Iterator
from typing import Final

from webhook.model import health, kinds
from webhook.model.cluster import Unseen
from webhook.model.health import HealthCheck
from webhook.model.kinds import CAPI_MHC, FAR_TEMPLATE, MDR_TEMPLATE, METAL3_TEMPLATE, MHC, NHC, SNR_TEMPLATE
from webhook.model.objects import Field, Object
from webhook.rule import Action, Context, Finding, NoParams, Rule

_TEMPLATES: Final = (SNR_TEMPLATE, FAR_TEMPLATE, MDR_TEMPLATE, METAL3_TEMPLATE)


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    view = context.fact(health.view, obj)
    if view.handler:
        return
    for reference in view.templates:
        try:
            yield from _judge(reference, view, context)
        except Unseen as blind:
            yield blind


def _judge(reference: Field, view: HealthCheck, context: Context[NoParams]) -> Iterator[Finding]:
    api_version, kind_name, name, said = (
        reference[key].text or "" for key in ("apiVersion", "kind", "name", "namespace")
    )
    namespace = said if view.kind is NHC else view.obj.namespace
    if not (api_version and kind_name and name and namespace):
        return
    kind = kinds.find(api_version.rpartition("/")[0], kind_name)
    if kind not in _TEMPLATES:
        raise Unseen(f"{kind_name} {namespace}/{name}")
    template = context.cluster.get(kind, namespace, name)
    if template is None:
        elsewhere = f"; its namespace {said} is ignored" if said not in ("", namespace) else ""
        yield Finding(
            reference.path,
            f"there is no {kind_name} {namespace}/{name}{elsewhere}: nothing is remediated until there is one",
        )
    elif not template.at("spec", "template").present:
        yield Finding(reference.path, f"{kind_name} {namespace}/{name} has no spec.template: nothing is remediated")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    reads=_TEMPLATES,
    action=Action.WARN,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/util/external",
        "medik8s/node-healthcheck-operator:internal/controller/resources/templates.go",
    ),
)
