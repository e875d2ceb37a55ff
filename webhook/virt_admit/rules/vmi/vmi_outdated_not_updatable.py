"""A VMI with an outdated launcher cannot be updated.

**Why.** The VMI cannot migrate, and its eviction strategy refuses the eviction. So it keeps the old
virt-launcher, with its bugs and vulnerabilities, even if both update methods are listed, until an
administrator restarts it.

**Fix.** Set ``evictionStrategy: LiveMigrateIfPossible`` or ``None`` on the VM and restart it. The
restart also updates it.
"""

from virt_admit.forecasts.drain.external import external_movers
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.kubevirt.instances import expand, vmis
from virt_admit.model.kubevirt.settings import versions
from virt_admit.rule import VMI, Action, Context, Finding, Findings, Object, rule, union


@rule(
    kinds=(VMI,),
    reads=union(expand.STRATEGY_READS, changed_disks.DISK_READS, external_movers.MARK_READS),
    action=Action.AUDIT,
    at_admission=False,
    sources=(
        "OpenShift Virtualization, Updates 6.2.2",
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/"
            "workload-updater.go#getUpdateData"
        ),
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    outdated = vmi.label(vmis.OUTDATED)
    if not outdated.present or vmis.migratable(vmi) is not False:
        return
    strategy = context.cached(expand.strategy, vmi)
    refused = strategy.value == "LiveMigrate" or (
        strategy.value == "External" and not external_movers.may_move(vmi, context.cluster)
    )
    if refused:
        kept = changed_disks.brief(vmi, context.cluster)
        remedy = kept or f"Set {versions.shut_down_strategies(context.cluster)}, then restart."
        yield Finding(
            outdated.path,
            f"it cannot migrate ({vmis.blocking_reason(vmi)}) and {strategy.phrase} refuses "
            f"eviction, so it is never updated. {remedy}",
            value=vmis.blocking_reason(vmi),
            command=changed_disks.command(vmi, context.cluster),
        )
