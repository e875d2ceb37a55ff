"""The interval between eviction batches is shorter than 30 seconds.

**Why.** A guest needs about that long to shut down. KubeVirt then evicts the next batch while the
previous one is still shutting down, so more VMs are down at once than ``batchEvictionSize`` allows.

**Fix.** Write at least ``30s``. The default is ``1m0s``.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.rule import Action, Context, Finding, Findings, Object, parse_duration, rule, show

SHORTEST = 30 * SECOND  # half of the default, and about as long as a guest needs to shut down


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    interval = workload_updates.block(obj)["batchEvictionInterval"]
    try:
        nanoseconds = parse_duration(interval.value)
    except ValueError:
        return
    if 0 < nanoseconds < SHORTEST:
        yield Finding(
            interval.path,
            f"{show(interval.value)} is too short: guests of one batch are still shutting down "
            "when the next is evicted. Use at least 30s.",
        )
