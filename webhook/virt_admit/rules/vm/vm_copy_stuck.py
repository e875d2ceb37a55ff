"""A snapshot, a restore, a clone or a Forklift migration of a VM has failed, or does not end.

**Why.** The VM of a restore or a clone does not appear, the backup that a snapshot is to be does
not exist, and KubeVirt tells it only in conditions and Events of that object. A webhook such as
KubeMacPool's refuses a restored VM whose MAC address another VM has. While a snapshot or a restore
is under way, its VM is locked. A Plan of Forklift says only that it has FAILED, and leaves the VM
off that it stopped.

**Fix.** Do what the finding names. A restore cannot be changed: delete it, and create it again,
with a patch of the VM if need be. Of several failed snapshots of a VM, none is reported once a
later one is ready. Start the VM of a failed Plan until the Plan runs again where the
finding says so: never where the new VM may exist.
"""

from virt_admit.forecasts.drain.control import failed_plans, held_copies
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.kinds import FORKLIFT_PLAN, VM_CLONE, VM_RESTORE, VM_SNAPSHOT
from virt_admit.model.messages import ended, sentence
from virt_admit.model.problems import Problem
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(VM_RESTORE, VM_CLONE, VM_SNAPSHOT, FORKLIFT_PLAN),
    reads=union(held_copies.READS, failed_plans.READS, clock.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/storage/snapshot/restore.go#updateVMRestore",
        "kubevirt/kubevirt:pkg/storage/snapshot/snapshot.go#updateSnapshotStatus",
        "kubevirt/kubevirt:pkg/virt-controller/watch/clone/clone.go#updateStatus",
        "https://github.com/kubevirt/kubevirt/pull/8986",
        "kubev2v/forklift:pkg/apis/forklift/v1beta1/plan/vm.go#VMStatus",
    ),
)
def check(copy: Object, context: Context) -> Findings:
    if kinds.of(copy) is FORKLIFT_PLAN:
        yield from _finding(copy, failed_plans.of(copy, context.cluster))
        return
    if kinds.of(copy) is not VM_CLONE and held_copies.made_by(copy, context.cluster) is not None:
        return  # told with the clone
    yield from _finding(copy, held_copies.of(copy, context.cluster))


def _finding(copy: Object, held: Problem | None) -> Findings:
    if held is not None:
        path = copy.metadata["name"].path
        reason = ended(held.reason)
        first = sentence(held.remedy.partition(". ")[0])
        message = check.first_that_fits(
            path, f"{reason} {sentence(held.remedy)}", f"{reason} {first}", reason
        )
        yield Finding(path, message, value=held.reason, command=held.command)
