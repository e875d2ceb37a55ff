"""A running VMI has a different eviction strategy than its VM.

**Why.** KubeVirt copies the strategy into the VMI when the VM starts. A drain uses the copied value
until the next start. KubeVirt reports the difference only by the condition ``RestartRequired``, and
ignores live changes while it is set.

**Fix.** Restart the VM (``virtctl restart``).
"""

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.rule import VM, VMI, Action, Context, Finding, Findings, Object, rule, show, union


@rule(
    kinds=(VM,),
    reads=union(vmis.READS, changed_disks.of_judged_vm(changed_disks.DISK_READS)),
    action=Action.AUDIT,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/defaults/defaults.go#setDefaultEvictionStrategy",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRestartRequired",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    strategy = vms.vmi_spec(vm)["evictionStrategy"]
    if not strategy.present:
        return
    vmi = context.cluster.get(VMI, vms.namespace_of(vm), vm.name)
    if vmi is None or not vmis.running(vmi):
        return
    frozen = vmi.at("spec", "evictionStrategy").value
    if frozen != strategy.value:
        has = f"has {show(frozen)}" if frozen is not None else "has no strategy"
        yield Finding(
            strategy.path,
            f"the running VMI still {has} instead of {show(strategy.value)}, and a drain uses the "
            f"VMI's value. {changed_disks.brief(vm, context.cluster) or 'Restart the VM.'}",
            value=(strategy.value, frozen),
            command=changed_disks.command(vm, context.cluster),
        )
