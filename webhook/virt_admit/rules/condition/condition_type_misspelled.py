"""A condition of a health check has a misspelled type.

**Why.** Controllers compare types exactly. Nodes have no condition ``ready``, ``diskpressure`` or
``NotReady``, so the check never acts on it. ``NotReady`` is only how kubectl prints a node whose
``Ready`` is not ``True``.

**Fix.** Write the type as nodes report it: ``Ready``, ``MemoryPressure``, ``DiskPressure``,
``PIDPressure`` or ``NetworkUnavailable``. Instead of ``NotReady``, list ``Ready`` with status
``"False"`` and with status ``"Unknown"``.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, rule, show

_CORRECT_TYPES: Final = {"notready": "Ready"} | {
    known.lower(): known for known in health_checks.HEALTHY
}

_TYPES: Final = (
    "{"
    + ", ".join(f"{cel.text(key)}: {cel.text(name)}" for key, name in _CORRECT_TYPES.items())
    + "}"
)


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    fixable=True,
    denials=(
        cel.Denial(
            each=cel_checks.CONDITIONS,
            when=(
                f"type(item) == map && {cel.is_text('item.?type')} && item.type.lowerAscii() in "
                f"{_TYPES} && !({cel.one_of('item.type', tuple(health_checks.HEALTHY))})"
            ),
            path=f"{cel_checks.PATH} + '.type'",
            message=(
                f"'nodes have no condition ' + {cel.shown('item.type')} + ', so this entry never "
                f"matches. Use ' + {_TYPES}[item.type.lowerAscii()] + '.'"
            ),
            value="item.type",
        ),
    ),
    sources=("k8s.io/api:core/v1#NodeConditionType",),
)
def check(obj: Object, context: Context) -> Findings:
    for condition in context.cached(health_checks.view, obj).entries():
        suggestion = _CORRECT_TYPES.get(condition.type.lower())
        notready = condition.type.lower() == "notready"  # stands for two entries
        if suggestion is not None and not condition.well_known:
            path = condition.entry["type"].path
            yield Finding(
                path,
                f"nodes have no condition {show(condition.type)}, so this entry never matches. Use "
                f"{suggestion}.",
                cause=Cause.NOT_SUPPORTED,
                fix=() if notready else (Patch("replace", path, suggestion),),
                why="the value is misspelt",
            )
