"""A virtual machine instance has no controller that recreates it.

**Why.** An instance without a controller is lost permanently if a drain shuts it down or its node
fails.

**Fix.** Create a VirtualMachine instead, or a VirtualMachineInstanceReplicaSet.
"""

from virt_admit.rule import VMI, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(VMI,),
    action=Action.AUDIT,
    at_admission=False,
    sources=("kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",),
)
def check(vmi: Object, _: Context) -> Findings:
    if vmi.controller is None:
        yield Finding(
            vmi.metadata["ownerReferences"].path,
            "no controller owns this VMI, so a drain that shuts it down or a node failure deletes "
            "it permanently. Create a VirtualMachine instead.",
        )
