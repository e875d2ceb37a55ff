"""A virtual machine instance that nothing makes again.

**Why.** An instance without a controller is lost for good when a drain shuts it down or its node fails.

**Fix.** Make it a VirtualMachine, or let a VirtualMachineInstanceReplicaSet make it.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import VMI
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vmi: Object, _: Context[NoParams]) -> Iterator[Finding]:
    if vmi.controller is None:
        yield Finding(
            vmi.metadata["ownerReferences"].path,
            "no controller owns it: a drain that shuts it down, or the loss of its node, ends it for good; "
            "make it a VirtualMachine",
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
