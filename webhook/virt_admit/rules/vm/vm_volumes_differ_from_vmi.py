"""A VM names another claim for a volume than its running VMI,
and KubeVirt copies nothing between them.

**Why.** The running guest writes to the claim of the VMI. The next restart uses the claim of the
VM, which does not have what was written since. This happens when a volume migration is reverted
later. It also happens when the copy never starts, because the VM has the condition
``RestartRequired`` or ``vmRolloutStrategy`` is ``Stage``. KubeVirt may report nothing. Before
KubeVirt 1.4.1 a ReadWriteOnce claim with the persistent TPM or EFI state of the VM has the same
effect. With ``updateVolumesStrategy: Replacement`` the exchange is meant, and is at most recorded;
CD-ROMs hold nothing that a guest writes.

**Fix.** Do not restart the VM. Name the claim of the VMI again in the VM, also where the VM is kept
in Git, and write ``updateVolumesStrategy: Migration`` there as long as the VM has it. To move to
the other claim, let KubeVirt copy: its workload update methods have to contain ``LiveMigrate``.
"""

from collections.abc import Iterator

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.units import show
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, cut, rule


@rule(
    kinds=(VM,),
    reads=changed_disks.of_judged_vm(changed_disks.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#handleVolumeUpdateRequest",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#getLastVMRevisionSpec",
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/volume-migration/"
            "volume-migration.go#ValidateVolumes"
        ),
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/volume-migration/"
            "volume-migration.go#ValidateVolumesUpdateMigration"
        ),
        "kubevirt/user-guide:docs/storage/volume_migration.md",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    changed = changed_disks.of_vm(vm, context.cluster)
    vmi = context.cluster.get(VMI, vm.namespace or "default", vm.name) if changed else None
    why = changed_disks.why_not_copied(vm, vmi, context.cluster) if vmi is not None else None
    if why is None:
        return
    command = changed_disks.command(vm, context.cluster)
    for each in changed:
        if changed_disks.is_replacement(vm):
            yield Finding(
                each.named.path,
                check.first_that_fits(
                    each.named.path, *_replaced(each.named.text or "", each.used)
                ),
                value=(each.named.value, each.used),
                max_action=Action.AUDIT,
                problem=problem_of(ProblemCause.VOLUMES_DIFFER, vm),
            )
            continue
        yield Finding(
            each.named.path,
            check.first_that_fits(
                each.named.path, *_messages(each.named.text or "", each.used, why)
            ),
            value=(each.named.value, each.used),
            problem=problem_of(ProblemCause.VOLUMES_DIFFER, vm),
            command=command,
        )


def _replaced(named: str, used: str) -> Iterator[str]:
    for length in (253, 60, 30, 20):
        new, old = show(cut(named, length)), show(cut(used, length))
        yield (
            "updateVolumesStrategy Replacement takes effect at its next restart: the VMI runs on "
            f"claim {old} until then, and {new} gets no data of it. If that is not meant, name "
            f"{old} again."
        )


def _messages(named: str, used: str, why: str) -> Iterator[str]:
    for length in (253, 60, 30, 20):
        new, old = show(cut(named, length)), show(cut(used, length))
        yield (
            f"do not restart it: the VMI runs on claim {old} and no copy to {new} is under way "
            f"({why}). The next restart uses {new} without new data. Name {old} again."
        )
