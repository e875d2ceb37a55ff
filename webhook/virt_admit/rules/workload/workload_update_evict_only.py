"""Evict is the only workload update method.

**Why.** KubeVirt evicts every outdated VM, even a VM that could migrate. With the eviction strategy
``None`` the VM is stopped. The same happens to a VM with a pending hotplug of CPU, memory or
volumes. Where one node runs all VMs, no VM can migrate, and ``Evict`` is the method that fits.

**Fix.** List ``LiveMigrate`` as well. KubeVirt tries it first for every VM that can migrate.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes import nodes
from virt_admit.rule import HCO, KUBEVIRT, NODE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    reads={NODE: ("metadata.labels",)},
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater_test.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if workload_updates.methods(obj) == {workload_updates.EVICT} and not context.cluster.cached(
        nodes.alone
    ):
        yield Finding(
            workload_updates.listed(obj).path,
            "workload updates and hotplugs evict every VM, even those that can migrate. Add "
            "LiveMigrate; it is tried first.",
            value=workload_updates.EVICT,
        )
