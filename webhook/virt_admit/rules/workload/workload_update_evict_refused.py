"""Workload updates evict virtual machines whose eviction is refused.

**Why.** The updater uses the eviction API. KubeVirt refuses the eviction of a VM with the strategy
``LiveMigrate`` that cannot migrate. With ``External`` it waits for a controller outside KubeVirt,
which nothing may do where no label and no owner names one. So both update methods together never
update these VMs.

**Fix.** Set ``LiveMigrateIfPossible`` or ``None`` on the VM and restart it.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.external import external_movers
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubevirt.instances import expand, vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.kubevirt.settings import versions
from virt_admit.rule import Action, Context, Finding, Findings, Object, count, names, rule, union


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=union(
        vmis.READS, expand.STRATEGY_READS, changed_disks.DISK_READS, external_movers.MARK_READS
    ),
    action=Action.WARN,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "pod-eviction-admitter.go#admitLauncherPod"
        ),
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",
        "OpenShift Virtualization, Updates 6.2.2",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if workload_updates.EVICT not in workload_updates.methods(obj):
        return
    refusing = [
        vmi
        for vmi, migratable, eviction in workload_updates.evictions(obj, context.cluster)
        if migratable is False
        and (
            eviction is Eviction.REFUSED
            or (eviction is Eviction.WAITS and not external_movers.may_move(vmi, context.cluster))
        )
    ]
    if refusing:
        kept = changed_disks.endangered(refusing, context.cluster)
        remedy = kept or f"Set {versions.shut_down_strategies(context.cluster)}, then restart."
        yield Finding(
            workload_updates.listed(obj).path,
            f"{count(len(refusing), 'VM')} can neither migrate nor be evicted, so never updated: "
            f"{names((vmi.full_name for vmi in refusing), 30)}. {remedy}",
            value=(workload_updates.EVICT, len(refusing)),
        )
    yield from more_may_exist(context.cluster, VMI)
