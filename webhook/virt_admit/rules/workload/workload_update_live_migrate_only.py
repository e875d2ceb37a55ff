"""VMs that cannot migrate are never updated.

**Why.** With ``LiveMigrate`` as the only method an update neither reaches nor interrupts a VM that cannot
migrate. It keeps its old launcher, with its bugs and holes, until somebody restarts it.

**Fix.** Add ``Evict`` as second method: it restarts those VMs and only those. Or restart them by hand.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen, more_may_exist
from virt_admit.model.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubevirt import vmis, workload_updates
from virt_admit.model.messages import count, names
from virt_admit.model.objects import Object
from virt_admit.model.reads import union
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    if workload_updates.methods(obj) != {workload_updates.LIVE_MIGRATE}:
        return
    left = workload_updates.not_migratable(context.cluster)
    if left:
        again = workload_updates.restarting(context.cluster)
        yield Finding(
            workload_updates.listed(obj).path,
            f"{count(len(left), 'VM')} cannot migrate ({vmis.blocking_reason(left[0])}) and will stay outdated; "
            f"add Evict, {again} would restart alone: {names((vmi.full_name for vmi in left), 30)}",
            value=(workload_updates.LIVE_MIGRATE, len(left)),
        )
    yield from more_may_exist(context.cluster, VMI)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    reads=union(vmis.READS, vmis.OWNER_READS),
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#getUpdateData",
    ),
)
