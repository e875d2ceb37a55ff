"""A time in a SelfNodeRemediationConfig is shorter than the operator accepts,
or not a valid duration.

**Why.** The operator's webhook rejects it. These times decide when a node concludes that it is
isolated. With a few milliseconds every short network problem causes a reboot. If one value is not a
valid duration, the operator cannot read any config.

**Fix.** Write at least 10ms for timeouts, 1s for ``apiCheckInterval`` and 10s for
``peerUpdateInterval``. Or remove the field to use its default (5s, 7s for ``peerRequestTimeout``,
15s and 15m).
"""

from virt_admit.model import cel_durations
from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.kubernetes.units import DURATION
from virt_admit.model.remediation.remediators import SNR_TIMES, Time, snr_time
from virt_admit.rule import Action, Context, Finding, Findings, Object, format_duration, rule


def _too_short(allowed: Time) -> str:
    shortest, default = format_duration(allowed.shortest), format_duration(allowed.default)
    return (
        f" is shorter than {shortest}, so the operator rejects it. Write {shortest} or more (the "
        f"default is {default})."
    )


def _remedy(allowed: Time) -> str:
    return f". Write a duration (the default is {format_duration(allowed.default)})."


@rule(
    kinds=(SNR_CONFIG,),
    action=Action.DENY,
    denials=(
        *(
            denial
            for name, allowed in SNR_TIMES.items()
            for field, path in ((f"self.?spec.?{name}", f"'spec.{name}'"),)
            for denial in (
                cel_durations.below(field, path, allowed.shortest, _too_short(allowed), DURATION),
                cel_durations.invalid(field, path, _remedy(allowed), DURATION),
            )
        ),
    ),
    sources=("medik8s/self-node-remediation:selfnoderemediationconfig_webhook.go#validateTimes",),
)
def check(config: Object, _context: Context) -> Findings:
    for name, allowed in SNR_TIMES.items():
        field = config["spec"][name]
        try:
            if snr_time(config, name) < allowed.shortest:
                yield Finding(field.path, f"{field.value}{_too_short(allowed)}")
        except ValueError as error:
            yield Finding(field.path, f"{error}{_remedy(allowed)}")
