"""A condition of a health check lacks its type, its status or its time.

**Why.** The schema of machine.openshift.io requires none of them. Without a time the first flicker of the condition
removes the machine; without type or status the condition never matches. YAML turns ``status: False`` into a boolean.

**Fix.** Write all three, the status in quotes: ``{type: Ready, status: "False", timeout: 300s}``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.objects import Field, Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import Condition, HealthCheck
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if not view.handler:
        for condition in view.entries:
            yield from _judge(condition, view)


def _judge(condition: Condition, view: HealthCheck) -> Iterator[Finding]:
    entry, key = condition.entry, view.time_key
    if not entry.is_map:
        yield Finding(entry.path, f"{show(entry.value)} is no condition: write type, status and {key}")
        return
    if not condition.type:
        yield _unusable(entry["type"], "a type such as Ready")
    if not condition.status:
        yield _unusable(entry["status"], '"True", "False" or "Unknown", in quotes')
    if not condition.time.present:
        example = "300" if key == "timeoutSeconds" else "300s"
        yield Finding(
            condition.time.path,
            f"no {key} means zero: the first flicker of the condition starts remediation; write {key}: {example}",
            cause=Cause.REQUIRED,
        )


def _unusable(field: Field, wanted: str) -> Finding:
    if field.present:
        message = f"{show(field.value)} can never match a node's condition: write {wanted}"
        return Finding(field.path, message, cause=Cause.INVALID if field.text == "" else Cause.TYPE)
    message = f"a condition without {field.path[-1]} never matches a node's: write {wanted}"
    return Finding(field.path, message, cause=Cause.REQUIRED)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    check=check,
    sources=("openshift/machine-api-operator:install/0000_30_machine-api-operator_07_machinehealthcheck.crd.yaml",),
)
