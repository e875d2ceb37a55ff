"""Evict is the only workload update method.

**Why.** Every outdated VM goes through an eviction, also one that could simply migrate: with the eviction
strategy ``None`` it is stopped. So does a VM with a pending hotplug of CPU, memory or volumes.

**Fix.** List ``LiveMigrate`` as well; the gentler method is taken wherever it is possible.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import workload_updates
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if workload_updates.methods(obj) == {workload_updates.EVICT}:
        yield Finding(
            workload_updates.listed(obj).path,
            "updates and hotplugs evict every VM, also one that could migrate; add LiveMigrate, it goes first",
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
