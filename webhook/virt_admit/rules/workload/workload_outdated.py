"""VMs run an outdated launcher.

**Why.** KubeVirt has been updated, these VMs have not: they keep the bugs and holes of the old launcher, and
after a few releases they can no longer be migrated at all.

**Fix.** Depends on the reason: list update methods, let VMs migrate, let evictions pass, or just wait. ``virt-admit
drain --all`` tells it for each VM. Only ``scan`` and ``check`` report this.
"""

from collections import Counter
from collections.abc import Iterator

from virt_admit.model.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kinds import KUBEVIRT, VMI
from virt_admit.model.kubevirt import drain, workload_updates
from virt_admit.model.kubevirt.workload_updates import Reach
from virt_admit.model.messages import count
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

WHY = {
    Reach.MIGRATED: "wait for their turn",
    Reach.RESTARTED: "wait for their turn",
    Reach.STOPPED: "wait for their turn",
    Reach.RETRIED: "migrate in vain",
    Reach.UNKNOWN: "cannot be told",
}


def check(kubevirt: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    status = kubevirt["status"]
    number = status["outdatedVirtualMachineInstanceWorkloads"]
    if status["phase"].value != "Deployed" or not number.integer or number.integer < 0:
        return
    methods = workload_updates.methods(kubevirt)
    if methods:
        why = f"{_reasons(methods, context.cluster) or 'cannot see which'}; virt-admit drain --all tells it for each"
        yield from more_may_exist(context.cluster, VMI)
    else:
        why = "updates are switched off, list LiveMigrate"
    yield Finding(number.path, f"{count(number.integer, 'VM')} with an outdated launcher: {why}")


def _reasons(methods: frozenset[str], cluster: Cluster) -> str:
    never = "refuse eviction" if workload_updates.EVICT in methods else "cannot migrate"
    reasons = Counter(
        WHY.get(workload_updates.update(vmi, methods, cluster).reach, never)
        for vmi in workload_updates.outdated(cluster)
    )
    return ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(KUBEVIRT,),
    reads=drain.READS,
    action=Action.WARN,
    check=check,
    at_admission=False,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",),
)
