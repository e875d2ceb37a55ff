"""A condition of a health check has no type, status or time.

**Why.** The schema of machine.openshift.io requires none of them. Without a time, remediation
starts as soon as the condition appears. Without a type or a status, the condition never matches.
YAML turns ``status: False`` into a boolean, which the schema rejects even in a termination handler.

**Fix.** Write all three, with the status in quotes: ``{type: Ready, status: "False", timeout:
300s}``.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.model.remediation.health_checks import Condition, HealthCheck
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule, show

_NO_LIST: Final = (
    "is not a list, so the schema rejects the check. Write each condition as an item: - type: "
    "Ready."
)


def _empty(key: str) -> str:
    """Return whether an entry that is a map has no text at the key, in CEL."""
    return f"(type(item) == map && (!{cel.is_text(f'item.?{key}')} || item.{key} == ''))"


def _never(key: str, expected: str) -> str:
    shown = cel.shown(f"item.?{key}.orValue(null)")
    return (
        f"({cel.present(f'item.?{key}')} ? {shown} + ' never matches a condition. Write ' : '{key} "
        f"is missing, so the condition never matches. Write ') + {cel.text(f'{expected}.')}"
    )


def _missing(conditions: str, path: str, only_if: str) -> tuple[cel.Denial, ...]:
    """Return the denials of ``_missing_parts``."""
    return (
        cel.Denial(
            each=conditions,
            when=f"{only_if} && type(item) != map",
            path=path,
            message=(
                f"{cel.shown('item')} + ' is not a condition. Write type, status and ' + "
                f"{cel_checks.TIME_KEY} + '.'"
            ),
            value="item",
        ),
        *(
            cel.Denial(
                each=conditions,
                when=f"{only_if} && {_empty(key)}",
                path=f"{path} + '.{key}'",
                message=_never(key, expected),
                value=f"item.?{key}.orValue(null)",
            )
            for key, expected in (
                ("type", "a type such as Ready"),
                ("status", '"True", "False" or "Unknown", in quotes'),
            )
        ),
        cel.Denial(
            each=conditions,
            when=f"{only_if} && type(item) == map && !{cel.present(cel_checks.TIME)}",
            path=f"{path} + '.' + {cel_checks.TIME_KEY}",
            message=(
                f"{cel_checks.TIME_KEY} + ' is missing and counts as 0s: remediation starts as "
                f"soon as the condition ' + 'appears. Write ' + {cel_checks.TIME_KEY} + ': ' + "
                f"{cel_checks.USUAL_TIME} + '.'"
            ),
        ),
    )


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    denials=(
        *_missing(cel_checks.CONDITIONS, cel_checks.PATH, f"!{cel_checks.HANDLER}"),
        *_missing(cel_checks.MACHINE_CONDITIONS, cel_checks.MACHINE_PATH, "true"),
        cel.Denial(
            each=cel_checks.CONDITIONS,
            when=f"{cel_checks.HANDLER} && {_empty('status')}"
            f" && ({cel.present('item.?status')} || {cel_checks.OF_CLUSTER_API})",
            path=f"{cel_checks.PATH} + '.status'",
            message=_never("status", '"True", in quotes'),
            value="item.?status.orValue(null)",
        ),
        *(
            cel.Denial(
                when=(
                    f"{cel_checks.OF_CLUSTER_API} && {cel.present(field)} && "
                    f"type({field}.orValue(null)) != list"
                ),
                path=path,
                message=cel.text(_NO_LIST),
                value=f"{field}.orValue(null)",
            )
            for field, path in (
                (cel_checks.CONDITIONS_FIELD, cel_checks.PATH),
                (cel_checks.MACHINE_CONDITIONS_FIELD, cel_checks.MACHINE_PATH),
            )
        ),
    ),
    sources=(
        (
            "openshift/machine-api-operator:install/"
            "0000_30_machine-api-operator_07_machinehealthcheck.crd.yaml"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    for condition in view.entries():
        if not view.handler:
            yield from _missing_parts(condition, view)
        elif not condition.status and (condition.entry["status"].present or view.kind is CAPI_MHC):
            # the schema rejects true
            yield _never_matches(condition.entry["status"], '"True", in quotes')
    for condition in view.machine_entries():
        yield from _missing_parts(condition, view)
    for field in (view.conditions, view.machine_conditions):
        if (
            field.present and not field.is_list and view.kind is CAPI_MHC
        ):  # condition-list-missing reports it for the others
            yield Finding(field.path, _NO_LIST, cause=Cause.TYPE)


def _missing_parts(condition: Condition, view: HealthCheck) -> Findings:
    entry, key = condition.entry, view.time_key
    if not entry.is_map:
        yield Finding(
            entry.path, f"{show(entry.value)} is not a condition. Write type, status and {key}."
        )
        return
    if not condition.type:
        yield _never_matches(entry["type"], "a type such as Ready")
    if not condition.status:
        yield _never_matches(entry["status"], '"True", "False" or "Unknown", in quotes')
    if not condition.time.present:
        yield Finding(
            condition.time.path,
            f"{key} is missing and counts as 0s: remediation starts as soon as the condition "
            f"appears. Write {key}: {view.usual_time}.",
            cause=Cause.REQUIRED,
        )


def _never_matches(field: Field, expected: str) -> Finding:
    if field.present:
        message = f"{show(field.value)} never matches a condition. Write {expected}."
        return Finding(field.path, message, cause=Cause.INVALID if field.text == "" else Cause.TYPE)
    message = f"{field.path[-1]} is missing, so the condition never matches. Write {expected}."
    return Finding(field.path, message, cause=Cause.REQUIRED)
