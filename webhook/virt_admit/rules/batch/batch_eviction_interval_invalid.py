"""The interval between eviction batches is not a positive duration.

**Why.** Without a pause KubeVirt evicts one batch right after the other and stops nearly all VMs at once. The schema
accepts any string: HyperConverged rejects a malformed duration, KubeVirt only on updates.

**Fix.** Write a duration such as ``1m0s``, which is the default.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, parse_duration, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",),
)
def check(obj: Object, _context: Context) -> Findings:
    interval = workload_updates.block(obj)["batchEvictionInterval"]
    if not interval.present:
        return
    try:
        nanoseconds = parse_duration(interval.value)
    except ValueError as error:
        yield Finding(interval.path, str(error))
        return
    if nanoseconds <= 0:
        yield Finding(
            interval.path, f"{show(interval.value)} leaves no pause: all batches of VMs are evicted at once. Use 1m0s."
        )
