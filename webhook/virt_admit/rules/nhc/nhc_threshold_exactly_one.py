"""A NodeHealthCheck has no limit or two.

**Why.** The operator needs exactly one of ``minHealthy`` and ``maxUnhealthy`` to know when to stop. It rejects the
check otherwise.

**Fix.** Keep one of the two fields, such as ``minHealthy: 51%``.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import NHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    minimum, maximum = obj.at("spec", "minHealthy"), obj.at("spec", "maxUnhealthy")
    if minimum.present and maximum.present:
        message = "minHealthy and maxUnhealthy are both set; the operator rejects that. Keep one of them."
        cause = Cause.FORBIDDEN
    elif not minimum.present and not maximum.present:
        message = "no limit is set; the operator rejects that. Write minHealthy: 51%."
        cause = Cause.REQUIRED
    else:
        return
    yield Finding(minimum.path, message, cause=cause, value=(minimum.value, maximum.value))


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:api/v1alpha1/validation.go#ValidateMinHealthyMaxUnhealthy",),
)
