"""A condition of a health check has no type, status or time.

**Why.** The schema of machine.openshift.io requires none of them. Without a time, remediation starts as soon as the
condition appears. Without a type or a status, the condition never matches. YAML turns ``status: False`` into a boolean,
which the schema rejects even in a termination handler.

**Fix.** Write all three, with the status in quotes: ``{type: Ready, status: "False", timeout: 300s}``.
"""

from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import Condition, HealthCheck
from virt_admit.rule import CAPI_MHC, MHC, NHC, Action, Cause, Context, Field, Finding, Findings, Object, rule, show


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    sources=("openshift/machine-api-operator:install/0000_30_machine-api-operator_07_machinehealthcheck.crd.yaml",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    for condition in view.entries():
        if not view.handler:
            yield from _missing_parts(condition, view)
        elif not condition.status and (condition.entry["status"].present or view.kind is CAPI_MHC):
            yield _never_matches(condition.entry["status"], '"True", in quotes')  # the schema rejects true
    for condition in view.machine_entries():
        yield from _missing_parts(condition, view)
    for field in (view.conditions, view.machine_conditions):
        if (
            field.present and not field.is_list and view.kind is CAPI_MHC
        ):  # condition-list-missing reports it for the others
            message = "is not a list, so the schema rejects the check. Write each condition as an item: - type: Ready."
            yield Finding(field.path, message, cause=Cause.TYPE)


def _missing_parts(condition: Condition, view: HealthCheck) -> Findings:
    entry, key = condition.entry, view.time_key
    if not entry.is_map:
        yield Finding(entry.path, f"{show(entry.value)} is not a condition. Write type, status and {key}.")
        return
    if not condition.type:
        yield _never_matches(entry["type"], "a type such as Ready")
    if not condition.status:
        yield _never_matches(entry["status"], '"True", "False" or "Unknown", in quotes')
    if not condition.time.present:
        yield Finding(
            condition.time.path,
            f"{key} is missing and counts as 0s: remediation starts as soon as the condition appears. "
            f"Write {key}: {view.usual_time}.",
            cause=Cause.REQUIRED,
        )


def _never_matches(field: Field, expected: str) -> Finding:
    if field.present:
        message = f"{show(field.value)} never matches a condition. Write {expected}."
        return Finding(field.path, message, cause=Cause.INVALID if field.text == "" else Cause.TYPE)
    message = f"{field.path[-1]} is missing, so the condition never matches. Write {expected}."
    return Finding(field.path, message, cause=Cause.REQUIRED)
