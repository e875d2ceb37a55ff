"""A VM is being deleted for long, and a finalizer keeps it.

**Why.** The controller of the finalizer does not remove it: its VMI does not end, a webhook refuses
the update, a snapshot is under way, or the controller does not run. A namespace that is being
deleted stays Terminating with it. KubeVirt 0.59.0 refuses the update where the namespace has lost
the instance type of the VM first.

**Fix.** Remove the cause that the finding names. The finalizer then goes by itself. Do not remove
it by hand while the VMI or its pod exists.
"""

from virt_admit.model.kubernetes.reads import LateReads, Reads
from virt_admit.model.messages import ended, sentence
from virt_admit.rule import VM, Action, Context, Finding, Findings, Object, Urgency, rule


def _reads() -> Reads:
    from virt_admit.forecasts.drain.control import stuck_deletions  # noqa: PLC0415 - see LateReads

    return stuck_deletions.READS


@rule(
    kinds=(VM,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    of_deleted=True,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#removeVMFinalizer",
        "https://github.com/kubevirt/kubevirt/issues/9438",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    if not vm.deleted:
        return
    # no file is being deleted
    from virt_admit.forecasts.drain.control import stuck_deletions  # noqa: PLC0415
    from virt_admit.model.kubevirt.settings import removed_operators  # noqa: PLC0415

    stuck = stuck_deletions.of_vm(vm, context.cluster)
    # else told with KubeVirt
    if stuck is not None and removed_operators.kubevirt(context.cluster) is None:
        path = vm.metadata["finalizers"].path
        words = ended(stuck.reason), sentence(stuck.problem.remedy)
        message = check.first_that_fits(path, " ".join(words), words[0])
        yield Finding(path, message, value=vm.name, command=stuck.problem.command)
