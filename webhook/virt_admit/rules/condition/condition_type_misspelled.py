"""A condition of a health check has a misspelled type.

**Why.** Controllers compare types exactly. Nodes have no condition ``ready``, ``diskpressure`` or ``NotReady``, so the
check never acts on it. ``NotReady`` is only how kubectl prints a node whose ``Ready`` is not ``True``.

**Fix.** Write the type as nodes report it: ``Ready``, ``MemoryPressure``, ``DiskPressure``, ``PIDPressure`` or
``NetworkUnavailable``. Instead of ``NotReady``, list ``Ready`` with status ``"False"`` and with status ``"Unknown"``.
"""

from typing import Final

from virt_admit.model.remediation import health_checks
from virt_admit.rule import CAPI_MHC, MHC, NHC, Action, Cause, Context, Finding, Findings, Object, Patch, rule, show

_CORRECT_TYPES: Final = {"notready": "Ready"} | {known.lower(): known for known in health_checks.HEALTHY}


@rule(kinds=(MHC, CAPI_MHC, NHC), action=Action.DENY, fixable=True, sources=("k8s.io/api:core/v1#NodeConditionType",))
def check(obj: Object, context: Context) -> Findings:
    for condition in context.cached(health_checks.view, obj).entries():
        suggestion = _CORRECT_TYPES.get(condition.type.lower())
        notready = condition.type.lower() == "notready"  # stands for two entries
        if suggestion is not None and not condition.well_known:
            yield Finding(
                condition.entry["type"].path,
                f"nodes have no condition {show(condition.type)}, so this entry never matches. Use {suggestion}.",
                cause=Cause.NOT_SUPPORTED,
                fix=() if notready else (Patch("replace", condition.entry["type"].path, suggestion),),
                why="the value is misspelt",
            )
