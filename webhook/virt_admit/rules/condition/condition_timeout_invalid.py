"""The time of an unhealthy condition cannot be read, or is negative.

**Why.** Some texts pass the schema and cannot be decoded, such as ``9999999h``. One such value makes decoding of the
whole list fail: every health check of that kind in the cluster stops working.

**Fix.** Write numbers with the units ``ms s m h`` and nothing else, in quotes: ``300s``, ``1h30m``. There is no unit
for days. Cluster API v1beta2 takes whole seconds, without quotes.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import NegativeTime
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    for condition in context.cached(health_checks.view, obj).entries:
        if condition.time.present:
            try:
                condition.nanoseconds()
            except NegativeTime as error:
                yield Finding(condition.time.path, f"{error}: the first flicker starts remediation; write 5 minutes")
            except ValueError as error:
                yield Finding(condition.time.path, f"{error}; one unreadable time stops all health checks of this kind")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    check=check,
    sources=("k8s.io/apimachinery:pkg/apis/meta/v1/duration.go#UnmarshalJSON", "Go:time#ParseDuration"),
)
