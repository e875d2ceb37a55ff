"""A virtual machine instance has no controller that recreates it.

**Why.** An instance without a controller is lost permanently if a drain shuts it down or its node fails.

**Fix.** Create a VirtualMachine instead, or a VirtualMachineInstanceReplicaSet.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vmi: Object, _: Context[NoParams]) -> Iterator[Finding]:
    if vmi.controller is None:
        yield Finding(
            vmi.metadata["ownerReferences"].path,
            "no controller owns this VMI, so a drain that shuts it down or a node failure deletes it permanently. "
            "Create a VirtualMachine instead.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VMI,),
    action=Action.AUDIT,
    at_admission=False,
    check=check,
    sources=("kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",),
)
