"""The size of eviction batches is not a positive integer.

**Why.** With 0 or less KubeVirt never evicts a VM, although ``Evict`` looks enabled.

**Fix.** Write at least 1, or remove the field for the default of 10. To disable evictions, remove ``Evict``.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",),
)
def check(obj: Object, _context: Context) -> Findings:
    size = workload_updates.block(obj)["batchEvictionSize"]
    if not size.present:
        return
    if size.integer is None:
        yield Finding(size.path, f"{show(size.value)} is not an integer. Write the number of VMs to evict at once.")
    elif size.integer <= 0:
        yield Finding(size.path, f"{size.integer} means that KubeVirt never evicts a VM. Use at least 1.")
