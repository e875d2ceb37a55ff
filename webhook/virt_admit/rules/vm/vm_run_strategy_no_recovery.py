"""A virtual machine does not restart after its node fails.

**Why.** With ``Manual`` and ``Once`` KubeVirt does not restart the VM. After a node failure, a
crash, or a drain that shuts it down, the VM stays off until an administrator starts it.

**Fix.** Use ``runStrategy: Always`` if the VM must restart by itself.
"""

from virt_admit.model.kubevirt.instances import lifecycle, vms
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.rule import POOL, VM, Action, Context, DrainAdvice, Finding, Findings, Object, rule


@rule(
    kinds=(VM, POOL),
    action=Action.AUDIT,
    drain_advice=DrainAdvice.LOSS,
    at_admission=False,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRunStrategy",),
)
def check(vm: Object, _: Context) -> Findings:
    run = vms.vm_spec(vm)["runStrategy"]
    outcomes = lifecycle.RUN_STRATEGY.get(run.text or "")
    if outcomes is not None and outcomes.node_lost is Then.OFF and vms.vmi_spec(vm).is_map:
        yield Finding(
            run.path,
            f"{run.value} keeps the VM off after a node failure, a crash, or a drain that shuts it "
            "down. Use Always if it must restart by itself.",
        )
