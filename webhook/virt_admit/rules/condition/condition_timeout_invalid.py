"""The time of an unhealthy condition is negative or not a valid duration.

**Why.** Some values pass the schema and still cannot be decoded, such as ``9999999h``. One such
value makes decoding of the whole list fail: every health check of that kind in the cluster stops
working.

**Fix.** Write numbers with the units ``ms``, ``s``, ``m`` or ``h``, in quotes: ``300s``, ``1h30m``.
Days have no unit. Cluster API v1beta2 takes whole seconds without quotes.
"""

from itertools import chain

from virt_admit.model import cel
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.model.remediation.health_checks import NegativeTime
from virt_admit.rule import CAPI_MHC, MHC, NHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    denials=(
        *(
            cel.Denial(
                each=conditions,
                when=f"type(item) == map && {cel.present(cel_checks.TIME)}"
                f" && !{cel_checks.valid_time(f'{cel_checks.TIME}.orValue(null)')}",
                path=f"{path} + '.' + {cel_checks.TIME_KEY}",
                message=(
                    f"{cel.shown(f'{cel_checks.TIME}.orValue(null)')} + ' is negative or not a "
                    "valid time. ' + 'One invalid time stops all health checks of this kind. Write "
                    f"' + {cel_checks.USUAL_TIME} + '.'"
                ),
                value=f"{cel_checks.TIME}.orValue(null)",
            )
            for conditions, path in (
                (cel_checks.CONDITIONS, cel_checks.PATH),
                (cel_checks.MACHINE_CONDITIONS, cel_checks.MACHINE_PATH),
            )
        ),
    ),
    sources=(
        "k8s.io/apimachinery:pkg/apis/meta/v1/duration.go#UnmarshalJSON",
        "Go:time#ParseDuration",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    for condition in chain(view.entries(), view.machine_entries()):
        if condition.time.present:
            try:
                condition.nanoseconds()
            except NegativeTime as error:
                yield Finding(
                    condition.time.path,
                    f"{error}: remediation starts as soon as the condition appears. Write "
                    f"{view.usual_time}.",
                )
            except ValueError as error:
                yield Finding(
                    condition.time.path,
                    f"{error}. One invalid time stops all health checks of this kind.",
                )
