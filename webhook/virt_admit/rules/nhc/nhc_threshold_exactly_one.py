"""A node health check has no limit, or two.

**Why.** The operator needs exactly one of ``minHealthy`` and ``maxUnhealthy`` to know when to stop, and refuses the
check otherwise.

**Fix.** Keep one, such as ``minHealthy: 51%``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NHC
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    minimum, maximum = obj.at("spec", "minHealthy"), obj.at("spec", "maxUnhealthy")
    if minimum.present and maximum.present:
        text, cause = "minHealthy and maxUnhealthy exclude each other: keep one of them", Cause.FORBIDDEN
    elif not minimum.present and not maximum.present:
        text, cause = "nothing limits remediation, the operator refuses that: write minHealthy: 51%", Cause.REQUIRED
    else:
        return
    yield Finding(minimum.path, text, cause=cause, value=(minimum.value, maximum.value))


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:api/v1alpha1/validation.go#ValidateMinHealthyMaxUnhealthy",),
)
