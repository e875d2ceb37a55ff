"""A VM names another claim for a volume than its running VMI, and KubeVirt copies nothing between them.

**Why.** The running guest writes to the claim of the VMI. The next restart boots the claim of the VM, which does not have what
was written since. This happens when a volume migration is reverted later. It also happens when the copy never starts, because
the VM has the condition ``RestartRequired`` or ``vmRolloutStrategy`` is ``Stage``. KubeVirt may report nothing.

**Fix.** Do not restart the VM. Name the claim of the VMI again in the VM, also where the VM is kept in Git, and write
``updateVolumesStrategy: Migration`` there as long as the VM has it. To move to the other claim, let KubeVirt copy: its
workload update methods have to contain ``LiveMigrate``.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.reads import CONDITIONS
from virt_admit.model.kubevirt.instances import migrations, vmis, vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.rule import (
    KUBEVIRT,
    VM,
    VMI,
    Action,
    Cluster,
    Context,
    Field,
    Finding,
    Findings,
    Object,
    ProblemCause,
    cut,
    problem_of,
    rule,
    show,
)


@rule(
    kinds=(VM,),
    reads={
        VM: (*CONDITIONS, "status.volumeUpdateState"),
        VMI: ("metadata.ownerReferences", "spec.volumes", "status.phase", *CONDITIONS),
        KUBEVIRT: (),
    },
    action=Action.WARN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#handleVolumeUpdateRequest",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#getLastVMRevisionSpec",
        "kubevirt/kubevirt:pkg/virt-controller/watch/volume-migration/volume-migration.go#ValidateVolumes",
        "kubevirt/user-guide:docs/storage/volume_migration.md",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    vmi = context.cluster.get(VMI, vms.namespace_of(vm), vm.name)
    if vmi is None or vmi.deleted or vmi.at("status", "phase").text in migrations.FINAL_PHASES:
        return
    if (vmis.owner(vmi, "VirtualMachine") or vm.name) != vm.name:
        return
    differing = list(_differing(vm, vmi))
    if not differing or _is_copied(vm, vmi, context.cluster):
        return
    for named, used in differing:
        yield Finding(
            named.path,
            check.first_that_fits(named.path, *_messages(named.text or "", used)),
            value=(named.value, used),
            problem=problem_of(ProblemCause.VOLUMES_DIFFER, vm),
        )


def _messages(named: str, used: str) -> Iterator[str]:
    for length in (253, 60, 30, 20):
        new, old = show(cut(named, length)), show(cut(used, length))
        yield (
            f"the VMI runs on claim {old} and no copy to {new} is under way: the next restart boots {new} without new "
            f"data. Name {old} again."
        )


def _differing(vm: Object, vmi: Object) -> Iterator[tuple[Field, str]]:
    """Yield the claims of the VM that differ from those of its VMI, each with the one of the VMI."""
    running = {volume["name"].text: _claim(volume).text for volume in vmi.at("spec", "volumes").items()}
    for volume in vms.vmi_spec(vm)["volumes"].items():
        named, used = _claim(volume), running.get(volume["name"].text)
        if named.text and used and named.text != used:
            yield named, used


def _claim(volume: Field) -> Field:
    """Return the name of a volume's claim. A data volume has the name of its claim."""
    return next((volume[kind][name] for kind, name in _CLAIMS if volume[kind].is_map), volume["persistentVolumeClaim"])


_CLAIMS: Final = (("persistentVolumeClaim", "claimName"), ("dataVolume", "name"))


def _is_copied(vm: Object, vmi: Object, cluster: Cluster) -> bool:
    """Return whether KubeVirt copies the volumes, or starts that next, or takes a copy back.

    Raises:
        Unseen: that rests on the status of the VM or on KubeVirt's roll-out strategy, which cannot be read.
    """
    if vmi.condition("VolumesChange")["status"].text == "True":
        return True
    stored = vm if vm["status"].present else cluster.get(VM, vms.namespace_of(vm), vm.name)
    if stored is not None and stored.at("status", "volumeUpdateState", "volumeMigrationState").present:
        return True
    if vms.vm_spec(vm)["updateVolumesStrategy"].text != "Migration":
        return False
    if stored is not None and stored.condition("RestartRequired")["status"].text == "True":
        return False
    kubevirt = configuration.kubevirt(cluster)
    return kubevirt is None or kubevirt.at("spec", "configuration", "vmRolloutStrategy").text != "Stage"
