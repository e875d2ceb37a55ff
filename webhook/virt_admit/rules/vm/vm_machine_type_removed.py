"""A VM has a machine type that the next release rejects.

**Why.** KubeVirt admits only machine types that match ``emulatedMachines`` of its configuration, or
the defaults of the release. Release 1.7 removed the architecture ppc64le and its machine type
pseries. A VM that is stored already cannot be edited or started again. A running VMI keeps the
machine type that it was started with (``status.machine``).

**Fix.** Write a machine type that the release admits, such as ``q35``, and restart the VM before
the upgrade.
"""

import itertools

from virt_admit.model import releases
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, names, rule


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=configuration.MACHINE_READS,
    action=Action.WARN,
    at_admission=False,
    target={releases.KUBEVIRT: "1.5"},
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "vmi-create-admitter.go#validateEmulatedMachine"
        ),
        "kubevirt/kubevirt:pkg/virt-config/virt-config.go#DefaultAMD64EmulatedMachines",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    target = context.target.kubevirt
    if not target:
        return
    defaults = releases.about(releases.KUBEVIRT, target)["emulated_machines"]
    architecture = vms.vmi_spec(obj)["architecture"]
    if architecture.text and architecture.text not in defaults:
        message = f"KubeVirt {target} does not support the architecture {show(architecture.text)}"
        yield Finding(architecture.path, f"{message}. Move the VM.", cause=Cause.NOT_SUPPORTED)
        return
    machine = _machine(obj)
    built_in = defaults.get(architecture.text) or list(itertools.chain(*defaults.values()))
    if not machine.text or releases.accepts(built_in, machine.text):
        return
    configured = configuration.emulated_machines(context.cluster, architecture.text)
    if not releases.accepts(configured or (), machine.text):
        accepted = built_in if configured is None else configured
        remedy = f"Use one of {names(accepted)}."
        message = f"KubeVirt {target} rejects the machine type {show(machine.text)}. {remedy}"
        yield Finding(machine.path, message, cause=Cause.NOT_SUPPORTED)


def _machine(obj: Object) -> Field:
    """Return the machine type that a VMI runs with, or that the spec names."""
    running = obj.at("status", "machine", "type")
    if kinds.of(obj) is VMI and running.text:
        return running
    return vms.vmi_spec(obj).at("domain", "machine", "type")
