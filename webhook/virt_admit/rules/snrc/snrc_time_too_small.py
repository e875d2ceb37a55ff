"""A time in a SelfNodeRemediationConfig is shorter than the operator accepts, or not a valid duration.

**Why.** The operator's webhook rejects it. These times decide when a node concludes that it is isolated. With a few
milliseconds every short network problem causes a reboot. If one value is not a valid duration, the operator cannot read any
config.

**Fix.** Write at least 10ms for timeouts, 1s for ``apiCheckInterval`` and 10s for ``peerUpdateInterval``. Or remove the
field to use its default (5s, 7s for ``peerRequestTimeout``, 15s and 15m).
"""

from virt_admit.model.remediation.remediators import SNR_TIMES, snr_time
from virt_admit.rule import SNR_CONFIG, Action, Context, Finding, Findings, Object, format_duration, rule


@rule(
    kinds=(SNR_CONFIG,),
    action=Action.DENY,
    sources=("medik8s/self-node-remediation:selfnoderemediationconfig_webhook.go#validateTimes",),
)
def check(config: Object, _context: Context) -> Findings:
    for name, allowed in SNR_TIMES.items():
        field = config["spec"][name]
        try:
            if snr_time(config, name) < allowed.shortest:
                shortest, default = format_duration(allowed.shortest), format_duration(allowed.default)
                yield Finding(
                    field.path,
                    f"{field.value} is shorter than {shortest}, so the operator rejects it. Write {shortest} or more "
                    f"(the default is {default}).",
                )
        except ValueError as error:
            yield Finding(field.path, f"{error}. Write a duration (the default is {format_duration(allowed.default)}).")
