"""A VM has a machine type that KubeVirt does not accept any more.

**Why.** virt-api refuses the VMI, so that the VM is not started again once its guest has ended. A
VMI that runs keeps its machine type, also through migrations, which hides that until then. KubeVirt
accepts what one of the patterns in ``emulatedMachines`` of its configuration matches as a whole:
without them ``q35`` and not ``pc``.

**Fix.** Write ``q35`` and restart the VM in its maintenance window: its guest may name its disks
and network interfaces otherwise.
"""

import itertools

from virt_admit.model import releases
from virt_admit.model.commands import kubectl, merge_patch
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, names, rule

BUILT_IN = {
    "amd64": ("q35*", "pc-q35*"),
    "arm64": ("virt*",),
    "ppc64le": ("pseries*",),
    "s390x": ("s390-ccw-virtio*",),
}
ANY = tuple(itertools.chain(*BUILT_IN.values()))
"""For a VM of KubeVirt's default architecture."""


@rule(
    kinds=(VM,),
    reads=configuration.MACHINE_READS,
    action=Action.WARN,
    at_admission=False,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "vmi-create-admitter.go#validateEmulatedMachine"
        ),
        "kubevirt/kubevirt:pkg/virt-config/virt-config.go#GetEmulatedMachines",
        "https://github.com/harvester/harvester/issues/5005",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    spec = vms.vmi_spec(vm)
    machine, architecture = spec.at("domain", "machine", "type"), spec["architecture"].text
    if not machine.text:
        return
    own = configuration.emulated_machines(context.cluster, architecture)
    accepted = BUILT_IN.get(architecture or "", ANY) if own is None else own
    if releases.accepts(accepted, machine.text):
        return
    to = releases.machine_of(accepted)
    change = {"template": {"spec": {"domain": {"machine": {"type": to}}}}}
    namespace = vms.namespace_of(vm)
    command = (
        merge_patch(VM, vm.name, namespace, {"spec": change})
        if to
        else kubectl("edit", VM, vm.name, namespace)
    )
    message = (
        f"KubeVirt does not accept the machine type {show(machine.text)}, so that the VM is not "
        f"started again once it is off. Write {to or 'one that it accepts'} (accepted: "
        f"{names(accepted, 80)}) and restart it in its window, as its guest may name disks and "
        "NICs otherwise."
    )
    yield Finding(machine.path, message, cause=Cause.NOT_SUPPORTED, command=command)
