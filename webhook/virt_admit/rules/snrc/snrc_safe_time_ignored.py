"""``safeTimeToAssumeNodeRebootedSeconds`` is shorter than the time that a node needs to reboot
itself.

**Why.** SNR moves the workload of an unresponsive node only after the node must have rebooted. It
computes the minimum time from the config, the number of workers and the watchdog of the node, and
silently ignores a shorter value. Failover is slower than the config suggests.

**Fix.** Remove the field, or lower the values that the minimum depends on: ``apiCheckInterval``,
``maxApiErrorThreshold``, the peer timeouts, and the watchdog timeout of the nodes.
"""

from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.remediation import remediators
from virt_admit.model.remediation.remediators import configured_safe_time, worst_safe_time
from virt_admit.rule import Action, Context, Finding, Findings, Object, format_duration, rule


@rule(
    kinds=(SNR_CONFIG,),
    reads=remediators.SNR_READS,
    action=Action.WARN,
    sources=("medik8s/self-node-remediation:internal/reboot/calculator.go#GetRebootDuration",),
)
def check(config: Object, context: Context) -> Findings:
    configured = configured_safe_time(config)
    if configured is None:
        return
    try:
        minimum = worst_safe_time(config, context.cluster)
    except ValueError:
        return
    if configured < minimum:
        yield Finding(
            config.at("spec", "safeTimeToAssumeNodeRebootedSeconds").path,
            f"{format_duration(configured)} is silently ignored: a node may need "
            f"{format_duration(minimum)} to reboot. Remove the field, or shorten apiCheckInterval "
            "or the watchdog timeout.",
        )
