"""A time in a SelfNodeRemediationConfig is shorter than the operator accepts, or not a valid duration.

**Why.** The operator's webhook rejects it. These times decide when a node concludes that it is isolated. With a few
milliseconds every short network problem causes a reboot. If one value is not a valid duration, the operator cannot read any
config.

**Fix.** Write at least 10ms for timeouts, 1s for ``apiCheckInterval`` and 10s for ``peerUpdateInterval``. Or remove the
field to use its default (5s, 7s for ``peerRequestTimeout``, 15s and 15m).
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.remediation.remediators import SNR_TIMES, snr_time
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(config: Object, _context: Context[NoParams]) -> Iterator[Finding]:
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


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(SNR_CONFIG,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/self-node-remediation:selfnoderemediationconfig_webhook.go#validateTimes",),
)
