"""Evict is the only workload update method.

**Why.** KubeVirt evicts every outdated VM, even a VM that could migrate. With the eviction strategy ``None`` the VM is
stopped. The same happens to a VM with a pending hotplug of CPU, memory or volumes.

**Fix.** List ``LiveMigrate`` as well. KubeVirt tries it first for every VM that can migrate.
"""

from collections.abc import Iterator

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if workload_updates.methods(obj) == {workload_updates.EVICT}:
        yield Finding(
            workload_updates.listed(obj).path,
            "workload updates and hotplugs evict every VM, even those that can migrate. Add LiveMigrate; it is tried first.",
            value=workload_updates.EVICT,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater_test.go",
    ),
)
