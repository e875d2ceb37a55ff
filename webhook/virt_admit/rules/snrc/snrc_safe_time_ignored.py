"""``safeTimeToAssumeNodeRebootedSeconds`` is less than the time that a node needs to reboot itself.

**Why.** SNR moves the workload of a silent node only when that node must have rebooted. It computes the least time
for that from the config, the number of workers and the node's watchdog, and silently ignores a shorter one:
failover is not as fast as the config says.

**Fix.** Leave the field out, or lower what the computed time is made of: ``apiCheckInterval``,
``maxApiErrorThreshold``, the peer timeouts, and nodes without a fast watchdog.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import SNR_CONFIG
from virt_admit.model.objects import Object
from virt_admit.model.remediation import remediators
from virt_admit.model.remediation.remediators import configured_safe_time, worst_safe_time
from virt_admit.model.units import format_duration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(config: Object, context: Context[NoParams]) -> Iterator[Finding]:
    wanted = configured_safe_time(config)
    if wanted is None:
        return
    try:
        least = worst_safe_time(config, context.cluster)
    except ValueError:
        return
    if wanted < least:
        yield Finding(
            config.at("spec", "safeTimeToAssumeNodeRebootedSeconds").path,
            f"{format_duration(wanted)} is less than the {format_duration(least)} that a node may need to reboot, and "
            "is silently ignored; remove it, or shorten what that is made of (apiCheckInterval, watchdog)",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(SNR_CONFIG,),
    reads=remediators.SNR_READS,
    action=Action.WARN,
    check=check,
    sources=("medik8s/self-node-remediation:internal/reboot/calculator.go#GetRebootDuration",),
)
