"""Workload updates skip virtual machines that cannot migrate.

**Why.** With ``LiveMigrate`` as the only method, an update skips a VM that cannot migrate. The VM keeps its old launcher,
with its bugs and vulnerabilities, until an administrator restarts it.

**Fix.** Add ``Evict`` as second method: KubeVirt then restarts only those VMs. Or restart them manually.
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
    skipped = workload_updates.not_migratable(context.cluster)
    if skipped:
        restarting = workload_updates.restarting(context.cluster)
        yield Finding(
            workload_updates.listed(obj).path,
            f"{count(len(skipped), 'VM')} cannot migrate ({vmis.blocking_reason(skipped[0])}), so never updated: "
            f"{names((vmi.full_name for vmi in skipped), 30)}. Add Evict; {restarting} would restart, the others stay off.",
            value=(workload_updates.LIVE_MIGRATE, len(skipped)),
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
