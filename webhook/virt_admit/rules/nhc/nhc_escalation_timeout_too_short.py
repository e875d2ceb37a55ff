"""A step of an escalation has a timeout of less than one minute.

**Why.** No remediator finishes that fast; the next one would start while the first still acts on
the node. The operator rejects such a check. A timeout that is not a valid duration makes all
NodeHealthChecks of the cluster unreadable.

**Fix.** Use the time that the remediator needs plus a margin: 5m for Self Node Remediation, 10m for
fence agents.
"""

from typing import Final

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model import cel, cel_durations
from virt_admit.model.kubernetes.kinds import NHC
from virt_admit.model.kubernetes.units import DURATION, MINUTE, format_duration, parse_duration
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule

_STEPS: Final = cel.items("self.?spec.?escalatingRemediations")
_WITH_TIME: Final = "type(item) == map && item.?timeout.orValue(null) != null"
_PATH: Final = "'spec.escalatingRemediations.timeout'"


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    event="RemediationLoop",
    denials=(
        cel.Denial(
            each=_STEPS,
            when="!(type(item) == map) || item.?timeout.orValue(null) == null",
            path=_PATH,
            message="'timeout is missing; a step needs at least 1m. Write 5m.'",
        ),
        cel.Denial(
            each=_STEPS,
            when=(
                f"{_WITH_TIME} && {cel_durations.parsed('item.timeout', DURATION)}.exists(time, "
                f"time < {MINUTE})"
            ),
            path=_PATH,
            message=f"{cel.shown('item.timeout')}"
            " + ' is less than 1m, so the operator rejects it. Use at least 1m, preferably 5m.'",
            value="item.timeout",
        ),
        cel.Denial(
            each=_STEPS,
            when=f"{_WITH_TIME} && {cel_durations.is_invalid('item.timeout', DURATION)}",
            path=_PATH,
            message=f"{cel_durations.problem('item.timeout')}"
            " + '. One invalid time stops every NodeHealthCheck of the cluster.'",
            value="item.timeout",
        ),
    ),
    sources=(
        (
            "medik8s/"
            "node-healthcheck-operator:nodehealthcheck_webhook.go#validateEscalatingRemediationsTimeout"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for step in remediation_steps.escalation(obj):
        timeout = step.timeout
        if not timeout.present:
            yield Finding(
                timeout.path,
                "timeout is missing; a step needs at least 1m. Write 5m.",
                cause=Cause.REQUIRED,
            )
            continue
        try:
            nanoseconds = parse_duration(timeout.value, DURATION)
            if nanoseconds < MINUTE:
                yield Finding(
                    timeout.path,
                    f"{format_duration(nanoseconds)} is less than 1m, so the operator rejects it. "
                    "Use at least 1m, preferably 5m.",
                )
        except ValueError as error:
            yield Finding(
                timeout.path,
                f"{error}. One invalid time stops every NodeHealthCheck of the cluster.",
            )
