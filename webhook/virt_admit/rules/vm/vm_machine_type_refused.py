"""A VM has a machine type that KubeVirt does not accept any more.

**Why.** virt-api refuses the VMI, so that the VM is not started again once its guest has ended. A
VMI that runs keeps its machine type, also through migrations, which hides that until then. KubeVirt
accepts what matches ``emulatedMachines`` of its configuration: without it ``q35`` and not ``pc``.

**Fix.** Write ``q35`` and restart the VM in its maintenance window: its guest may name its disks
and network interfaces otherwise.
"""

import re

from virt_admit.model.commands import merge_patch
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule

BUILT_IN = {
    "amd64": ("q35*", "pc-q35*"),
    "arm64": ("virt*",),
    "ppc64le": ("pseries*",),
    "s390x": ("s390-ccw-virtio*",),
}


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
    machine = spec.at("domain", "machine", "type")
    if not machine.text:
        return
    own = configuration.emulated_machines(context.cluster, spec["architecture"].text)
    built_in = BUILT_IN.get(spec["architecture"].text or "", sum(BUILT_IN.values(), ()))
    if any(_matches(machine.text, pattern) for pattern in (*own, *built_in)):
        return
    to = (*own, *built_in)[0].rstrip("*")
    change = {"template": {"spec": {"domain": {"machine": {"type": to}}}}}
    command = merge_patch(VM, vm.name, vms.namespace_of(vm), {"spec": change})
    message = (
        f"KubeVirt does not accept the machine type {show(machine.text)}, so that the VM is not "
        f"started again once it is off. Write {to} and restart it in its window, as its guest may "
        "name disks and NICs otherwise."
    )
    yield Finding(machine.path, message, cause=Cause.NOT_SUPPORTED, command=command)


def _matches(machine: str, pattern: str) -> bool:
    """Return whether KubeVirt accepts a machine type by a pattern, which is a regular expression
    that need not be at its begin.
    """
    try:
        return re.search(pattern, machine) is not None
    except re.error:
        return True  # it is not known what that accepts
