"""A VMI with an outdated launcher that no workload update ever reaches.

**Why.** It cannot migrate, and its strategy refuses the eviction that the update would fall back to. So it keeps the
old virt-launcher, with its bugs and holes, even with both update methods listed, until somebody restarts it.

**Fix.** Set ``evictionStrategy: LiveMigrateIfPossible`` or ``None`` on the VM and restart it, which also updates it.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import VMI
from virt_admit.model.kubevirt import effective, vmis
from virt_admit.model.kubevirt.workload_updates import OUTDATED
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vmi: Object, context: Context[NoParams]) -> Iterator[Finding]:
    outdated = vmi.label(OUTDATED)
    if not outdated.present or vmis.migratable(vmi) is not False:
        return
    strategy = effective.strategy(vmi, context.cluster)
    if strategy.value in ("LiveMigrate", "External"):
        yield Finding(
            outdated.path,
            f"no update ever reaches it: {vmis.blocking_reason(vmi)}, and {strategy.phrase} refuses the eviction; "
            "use LiveMigrateIfPossible or None on the VM and restart it",
            value=vmis.blocking_reason(vmi),
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VMI,),
    reads=effective.STRATEGY_READS,
    action=Action.AUDIT,
    at_admission=False,
    check=check,
    sources=(
        "OpenShift Virtualization, Updates 6.2.2",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#getUpdateData",
    ),
)
