"""A virtual machine stays off after its guest reboots.

**Why.** ``rebootPolicy: Terminate`` makes a reboot of the guest end the VMI, which then counts as a
success. Only ``runStrategy: Always`` starts a new VMI. With ``RerunOnFailure``, ``Manual`` and
``Once`` an update inside the guest that reboots it switches the VM off.

**Fix.** Use ``runStrategy: Always``, or remove ``rebootPolicy`` so that the guest reboots inside
its VMI.
"""

from virt_admit.model.kubevirt.instances import lifecycle, vms
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Gate
from virt_admit.rule import KUBEVIRT, POOL, VM, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(VM, POOL),
    reads={KUBEVIRT: ()},
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/converter/compute/reboot_policy.go#Configure",
        "kubevirt/kubevirt:tests/compute/vm_lifecycle.go (with reboot policy)",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    policy = vms.vmi_spec(vm).at("domain", "rebootPolicy")
    outcomes = lifecycle.RUN_STRATEGY.get(vms.vm_spec(vm)["runStrategy"].text or "")
    if policy.value != "Terminate" or outcomes is None or outcomes.reboot is not Then.OFF:
        return
    # KubeVirt rejects or drops the field
    if not versions.gate_may_be_on(context.cluster, Gate.REBOOT_POLICY):
        return
    strategy = vms.vm_spec(vm)["runStrategy"].text
    yield Finding(
        policy.path,
        f"Terminate ends the VMI when the guest reboots, and runStrategy {strategy} then keeps the "
        "VM off. Use runStrategy: Always, or remove rebootPolicy.",
        value=(policy.value, strategy),
    )
