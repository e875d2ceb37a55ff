"""The interval between eviction batches is shorter than 30 seconds.

**Why.** A guest needs about that long to shut down. KubeVirt then evicts the next batch while the previous one is still
shutting down, so more VMs are down at once than ``batchEvictionSize`` allows.

**Fix.** Write at least ``30s``. The default is ``1m0s``.
"""

from collections.abc import Iterator

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import SECOND, parse_duration, show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

SHORTEST = 30 * SECOND  # half of the default, and about as long as a guest needs to shut down


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    interval = workload_updates.block(obj)["batchEvictionInterval"]
    try:
        nanoseconds = parse_duration(interval.value)
    except ValueError:
        return
    if 0 < nanoseconds < SHORTEST:
        yield Finding(
            interval.path,
            f"{show(interval.value)} is too short: guests of one batch are still shutting down when the next is evicted. "
            "Use at least 30s.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",),
)
