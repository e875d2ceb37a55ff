"""A condition of a health check has a status that no node reports.

**Why.** The status of a node condition is ``True``, ``False`` or ``Unknown``. Controllers compare
it exactly, so an entry with another value never matches. For custom conditions the rule only warns.
Entries of type ``NonexistentCondition`` are exempt: some fleets list one on purpose, so that the
check only replaces machines whose node was deleted. The schema of Cluster API rejects every other
status of a Machine condition.

**Fix.** Write one of the three, capitalized and in quotes.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.kubernetes.units import show
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.model.remediation.health_checks import Condition
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, Patch, rule

_UNKNOWN: Final = (
    f"type(item) == map && {cel.is_text('item.?status')} && item.status != ''"
    f" && !({cel.one_of('item.status', health_checks.STATUSES)})"
)
_MESSAGE: Final = (
    """'this is not a valid status, so the condition never matches. ' + 'Use exactly "True", """
    """"False" or "Unknown".'"""
)


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    fixable=True,
    denials=(
        cel.Denial(
            each=cel_checks.CONDITIONS,
            when=f"!({cel_checks.HANDLER}) && {_UNKNOWN} && {cel.is_text('item.?type')}"
            f" && {cel.one_of('item.type', tuple(health_checks.HEALTHY))}",
            path=f"{cel_checks.PATH} + '.status'",
            message=_MESSAGE,
            value="[item.type, item.status]",
        ),
        cel.Denial(
            each=cel_checks.MACHINE_CONDITIONS,
            when=_UNKNOWN,
            path=f"{cel_checks.MACHINE_PATH} + '.status'",
            message=_MESSAGE,
            value=f"[{cel.is_text('item.?type')} ? item.type : '', item.status]",
        ),
    ),
    sources=(
        "openshift/managed-cluster-config:deploy/osd-machine-api/management-clusters",
        "k8s.io/api:core/v1#ConditionStatus",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler:
        return
    for condition in filter(_is_unknown, view.entries()):
        if not condition.inert:
            most = Action.DENY if condition.well_known else Action.WARN
            yield _finding(condition, "the condition never matches", most)
    for condition in filter(_is_unknown, view.machine_entries()):
        yield _finding(condition, "the schema rejects it", Action.DENY)


def _is_unknown(condition: Condition) -> bool:
    return bool(condition.status) and condition.status not in health_checks.STATUSES


def _finding(condition: Condition, effect: str, most: Action) -> Finding:
    status = condition.entry["status"]
    return Finding(
        status.path,
        f"{show(condition.status)} is not a valid status, so {effect}. "
        'Use exactly "True", "False" or "Unknown".',
        value=(condition.type, condition.status),
        cause=Cause.NOT_SUPPORTED,
        fix=_capitalised(status),
        why="the value is misspelt",
        max_action=most,
    )


def _capitalised(status: Field) -> tuple[Patch, ...]:
    word = show(status.value).strip("'").capitalize()
    return (Patch("replace", status.path, word),) if word in health_checks.STATUSES else ()
