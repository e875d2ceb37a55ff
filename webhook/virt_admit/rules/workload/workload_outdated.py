"""Virtual machines run an outdated launcher.

**Why.** KubeVirt was updated, but these VMs were not. They keep the bugs and vulnerabilities of the old launcher. After a
few releases they can no longer migrate.

**Fix.** The fix depends on the reason: list update methods, make VMs migratable, allow evictions, or wait. ``virt-admit
drain --all`` shows the reason for each VM. Only ``scan`` and ``check`` report this.
"""

from collections import Counter

from virt_admit.forecasts.drain import vm_outcomes, workload_updates
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.rule import KUBEVIRT, VMI, Action, Cluster, Context, Finding, Findings, Object, count, rule

WHY = {
    Reach.MIGRATED: "waiting for their turn",
    Reach.RESTARTED: "waiting for their turn",
    Reach.STOPPED: "waiting for their turn",
    Reach.RETRIED: "failing to migrate",
    Reach.UNKNOWN: "undetermined",
}


@rule(
    kinds=(KUBEVIRT,),
    reads=vm_outcomes.READS,
    action=Action.WARN,
    at_admission=False,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",),
)
def check(kubevirt: Object, context: Context) -> Findings:
    status = kubevirt["status"]
    number = status["outdatedVirtualMachineInstanceWorkloads"]
    if status["phase"].value != "Deployed" or not number.integer or number.integer < 0:
        return
    methods = workload_updates.methods(kubevirt)
    if methods:
        why = f"{_reasons(methods, context.cluster) or 'names cannot be read'}. Run virt-admit drain --all for details."
        yield from more_may_exist(context.cluster, VMI)
    else:
        why = "updates are switched off. List LiveMigrate."
    yield Finding(
        number.path,
        f"{count(number.integer, 'VM')} {'runs' if number.integer == 1 else 'run'} an outdated launcher: {why}",
    )


def _reasons(methods: frozenset[str], cluster: Cluster) -> str:
    never = "refusing eviction" if workload_updates.EVICT in methods else "not migratable"
    reasons = Counter(
        WHY.get(workload_updates.update(vmi, methods, cluster).reach, never)
        for vmi in workload_updates.outdated(cluster)
    )
    return ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
