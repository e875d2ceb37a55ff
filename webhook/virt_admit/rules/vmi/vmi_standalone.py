"""A virtual machine instance has no controller that recreates it.

**Why.** An instance without a controller is lost permanently if a drain shuts it down or its node
fails. One that is left of a VirtualMachine which was deleted goes on with its guest, and keeps its
volumes from the VM that needs them now.

**Fix.** Create a VirtualMachine instead, or a VirtualMachineInstanceReplicaSet. An instance that is
left: create its VirtualMachine again, which adopts it, or delete it once its guest is not needed.
"""

from virt_admit.model.kubevirt.launcher import claim_holders
from virt_admit.rule import VMI, Action, Context, Finding, Findings, Object, rule

_LOST = "so a drain that shuts it down or a node failure deletes it permanently"


@rule(
    kinds=(VMI,),
    reads=claim_holders.READS,
    action=Action.AUDIT,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",
        "kubevirt/kubevirt:pkg/controller/controller_ref_manager.go#AdoptVirtualMachineInstance",
        "https://github.com/kubevirt/csi-driver/issues/182",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    if vmi.controller is not None:
        return
    path = vmi.metadata["ownerReferences"].path
    if not claim_holders.is_left(vmi, context.cluster):
        message = f"no controller owns this VMI, {_LOST}. Create a VirtualMachine instead."
    elif (held := claim_holders.awaiting(vmi, context.cluster)) is not None:
        claim, pod = held
        on = pod.at("spec", "nodeName").text
        message = (
            f"its VirtualMachine is gone, and pod {pod.name} on {on} waits for claim {claim}, "
            "which it holds. Check that its guest is not needed any more, and delete it."
        )
    else:
        message = (
            f"its VirtualMachine is gone, {_LOST}. Create that VirtualMachine again, or delete the "
            "VMI once its guest is not needed."
        )
    yield Finding(path, message)
