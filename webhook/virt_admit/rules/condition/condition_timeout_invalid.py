"""The time of an unhealthy condition is negative or not a valid duration.

**Why.** Some values pass the schema and still cannot be decoded, such as ``9999999h``. One such value makes decoding of
the whole list fail: every health check of that kind in the cluster stops working.

**Fix.** Write numbers with the units ``ms``, ``s``, ``m`` or ``h``, in quotes: ``300s``, ``1h30m``. Days have no unit.
Cluster API v1beta2 takes whole seconds without quotes.
"""

from collections.abc import Iterator
from itertools import chain

from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import NegativeTime
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    for condition in chain(view.entries(), view.machine_entries()):
        if condition.time.present:
            try:
                condition.nanoseconds()
            except NegativeTime as error:
                yield Finding(
                    condition.time.path,
                    f"{error}: remediation starts as soon as the condition appears. Write {view.usual_time}.",
                )
            except ValueError as error:
                yield Finding(condition.time.path, f"{error}. One invalid time stops all health checks of this kind.")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    check=check,
    sources=("k8s.io/apimachinery:pkg/apis/meta/v1/duration.go#UnmarshalJSON", "Go:time#ParseDuration"),
)
