"""Evict is the only workload update method.

**Why.** KubeVirt evicts every outdated VM, even a VM that could migrate. With the eviction strategy ``None`` the VM is
stopped. The same happens to a VM with a pending hotplug of CPU, memory or volumes.

**Fix.** List ``LiveMigrate`` as well. KubeVirt tries it first for every VM that can migrate.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater_test.go",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    if workload_updates.methods(obj) == {workload_updates.EVICT}:
        yield Finding(
            workload_updates.listed(obj).path,
            "workload updates and hotplugs evict every VM, even those that can migrate. Add LiveMigrate; it is tried first.",
            value=workload_updates.EVICT,
        )
