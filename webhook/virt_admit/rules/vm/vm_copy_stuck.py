"""A snapshot, a restore or a clone of a VM has failed, or does not end.

**Why.** The VM of a restore or a clone does not appear, the backup that a snapshot is to be does
not exist, and KubeVirt tells it only in conditions and Events of that object. A webhook such as
KubeMacPool's refuses a restored VM whose MAC address another VM has. While a snapshot or a restore
is under way, its VM is locked.

**Fix.** Do what the finding names. A restore cannot be changed: delete it, and create it again,
with a patch of the VM if need be. Of several failed snapshots of a VM, none is reported once a
later one is ready.
"""

from virt_admit.forecasts.drain.control import held_copies
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.kinds import VM_CLONE, VM_RESTORE, VM_SNAPSHOT
from virt_admit.model.messages import ended, sentence
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(VM_RESTORE, VM_CLONE, VM_SNAPSHOT),
    reads=union(held_copies.READS, clock.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/storage/snapshot/restore.go#updateVMRestore",
        "kubevirt/kubevirt:pkg/storage/snapshot/snapshot.go#updateSnapshotStatus",
        "kubevirt/kubevirt:pkg/virt-controller/watch/clone/clone.go#updateStatus",
        "https://github.com/kubevirt/kubevirt/pull/8986",
    ),
)
def check(copy: Object, context: Context) -> Findings:
    if kinds.of(copy) is not VM_CLONE and held_copies.made_by(copy, context.cluster) is not None:
        return  # told with the clone
    held = held_copies.of(copy, context.cluster)
    if held is not None:
        path = copy.metadata["name"].path
        reason = ended(held.reason)
        first = sentence(held.remedy.partition(". ")[0])
        message = check.first_that_fits(
            path, f"{reason} {sentence(held.remedy)}", f"{reason} {first}", reason
        )
        yield Finding(path, message, value=held.reason, command=held.command)
