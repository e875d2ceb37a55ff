"""Workload updates skip virtual machines that cannot migrate.

**Why.** With ``LiveMigrate`` as the only method, an update skips a VM that cannot migrate. The VM
keeps its old launcher, with its bugs and vulnerabilities, until it is restarted. While an update
moves the other VMs, this is a note. It is also a note where all of them set the eviction strategy
``None``: their owners chose when they are shut down.

**Fix.** Restart it when that suits, or add ``Evict`` as second method: KubeVirt then shuts down
only those VMs, at once if they are outdated. Those that their run strategy starts again are
updated, the others stay off.
"""

from collections.abc import Sequence

from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import count, names
from virt_admit.rule import Action, Cluster, Context, Finding, Findings, Object, rule, union


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=union(vmis.READS, vmis.OWNER_READS, changed_disks.DISK_READS),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/"
            "workload-updater.go#getUpdateData"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if workload_updates.methods(obj) != {workload_updates.LIVE_MIGRATE}:
        return
    skipped = workload_updates.not_migratable(context.cluster)
    if skipped:
        noted = workload_updates.left_to_migrate(context.cluster) or _are_restarted_by_choice(
            skipped
        )
        yield Finding(
            workload_updates.listed(obj).path,
            f"{count(len(skipped), 'VM')} cannot migrate ({vmis.blocking_reason(skipped[0])}), so "
            f"updates skip {'it' if len(skipped) == 1 else 'them'}: "
            f"{names((vmi.full_name for vmi in skipped), 30)}. "
            f"{_remedy(context.cluster, len(skipped))}",
            value=(workload_updates.LIVE_MIGRATE, len(skipped)),
            max_action=Action.AUDIT if noted else Action.DENY,
        )
    yield from more_may_exist(context.cluster, VMI)


def _are_restarted_by_choice(skipped: Sequence[Object]) -> bool:
    return all(vmi.at("spec", "evictionStrategy").text == "None" for vmi in skipped)


def _remedy(cluster: Cluster, skipped: int) -> str:
    if kept := changed_disks.endangered(workload_updates.not_migratable(cluster), cluster):
        return kept
    restarting = workload_updates.restarting(cluster)
    if not restarting:
        return "Restart them manually; after Evict none is known to start again."
    if _are_restarted_by_choice(workload_updates.not_migratable(cluster)):
        return "Restart them when it suits; Evict does so at each update."
    if workload_updates.left_to_migrate(cluster):
        return "Restart them when it suits; Evict does so now."
    if restarting == skipped:
        return "Add Evict; only these would restart."
    return f"Add Evict; {restarting} would restart, the others stay off."
