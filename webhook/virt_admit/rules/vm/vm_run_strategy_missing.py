"""A virtual machine sets neither ``runStrategy`` nor ``running``.

**Why.** KubeVirt does not guess whether a VM shall run: it refuses one that says nothing. A dry run or a CI job
without KubeVirt would let it through.

**Fix.** Write ``runStrategy: Always`` for a VM that shall survive the failure of its node, ``Halted`` for one that
somebody starts by hand.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import POOL, VM
from virt_admit.model.kubevirt import vms
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(vm: Object, _: Context[NoParams]) -> Iterator[Finding]:
    spec = vms.vm_spec(vm)
    if spec["running"].present or spec["runStrategy"].present or not vms.vmi_spec(vm).is_map:
        return
    yield Finding(
        spec["runStrategy"].path,
        "neither runStrategy nor running is set, KubeVirt refuses that; write runStrategy: Always "
        "(it comes back after a node failure) or Halted (it is started by hand)",
        cause=Cause.REQUIRED,
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL),
    action=Action.DENY,
    check=check,
    sources=("kubevirt/kubevirt:vms-admitter.go#validateRunStrategy",),
)
