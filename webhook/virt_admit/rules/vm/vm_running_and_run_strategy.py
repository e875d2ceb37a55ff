"""A virtual machine sets both ``running`` and ``runStrategy``.

**Why.** The two keys say the same thing in two ways; KubeVirt refuses a VM that carries both, even where they
agree. A dry run or a CI job without KubeVirt would let it through.

**Fix.** Keep ``runStrategy`` and remove ``running`` (``true`` means ``Always``, ``false`` means ``Halted``). An
apply does not remove a key that it does not manage: send ``running: null``, or edit the object.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import POOL, VM
from virt_admit.model.kubevirt import vms
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(vm: Object, context: Context[NoParams]) -> Iterator[Finding]:
    spec = vms.vm_spec(vm)
    running, strategy = spec["running"], spec["runStrategy"]
    if not running.present or not strategy.present or not vms.vmi_spec(vm).is_map:
        return
    suggestion = {True: " (it stands for Always)", False: " (it stands for Halted)"}.get(running.value is True, "")
    remedy = "keep runStrategy and remove running"
    if context.old is not None and vms.vm_spec(context.old)["running"].present:
        remedy = "keep runStrategy and set running: null (an apply does not remove a key it does not manage)"
    yield Finding(
        running.path,
        f"running{suggestion} and runStrategy are both set, KubeVirt accepts only one; {remedy}",
        value=(running.value, strategy.value),
        cause=Cause.FORBIDDEN,
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL),
    action=Action.DENY,
    check=check,
    sources=("OpenShift Virtualization, Nodes 10.1.2", "kubevirt/kubevirt:vms-admitter.go#validateRunStrategy"),
)
