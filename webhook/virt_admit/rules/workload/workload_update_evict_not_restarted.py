"""Workload updates evict virtual machines that do not restart.

**Why.** A successful eviction shuts the guest down cleanly. VMs with the run strategy ``Manual``,
``Halted`` or ``Once`` do not restart. VMs with ``RerunOnFailure`` do not restart either, because a
clean shutdown does not count as a failure. A VMI without a VM is lost.

**Fix.** Set ``runStrategy: Always`` on the VM, or start it manually after each update.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubevirt.instances import expand, vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.messages import count, names
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, rule, union


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=union(vmis.READS, vmis.OWNER_READS, expand.STRATEGY_READS),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#WorkloadUpdateMethodEvict",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    methods = workload_updates.methods(obj)
    if workload_updates.EVICT not in methods:
        return
    cluster = context.cluster
    migrates_first = workload_updates.LIVE_MIGRATE in methods
    off: list[Object] = []
    told: list[str] = []
    unseen: Unseen | None = None
    for vmi, migratable, eviction in workload_updates.evictions(obj, cluster):
        if eviction is not Eviction.SHUTS_DOWN or (migrates_first and migratable is not False):
            continue
        after = workload_updates.after_shutdown(vmi, cluster)
        if isinstance(after, Unseen):
            unseen = unseen or after
        elif not after.comes:
            off.append(vmi)
            told.append(f"{vmi.full_name} ({after.why})")
    if off:
        yield Finding(
            workload_updates.listed(obj).path,
            f"an update shuts down {count(len(off), 'VM')} without a restart: {names(told, 40)}. "
            "Write runStrategy: Always, or start them manually.",
            value=(workload_updates.EVICT, migrates_first, len(off)),
            command=vmis.edit(off),
        )
    if unseen:
        yield unseen
    yield from more_may_exist(cluster, VMI)
