"""A running VMI still has another eviction strategy than its VM.

**Why.** The strategy is frozen in the VMI when it starts. A drain follows the old value until then, however the VM
reads; KubeVirt says so only by the condition ``RestartRequired``, and while that is set it ignores live changes.

**Fix.** Restart the VM (``virtctl restart``).
"""

from collections.abc import Iterator

from virt_admit.model.kinds import VM, VMI
from virt_admit.model.kubevirt import vmis, vms
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vm: Object, context: Context[NoParams]) -> Iterator[Finding]:
    wanted = vms.vmi_spec(vm)["evictionStrategy"]
    if not wanted.present:
        return
    vmi = context.cluster.get(VMI, vms.namespace_of(vm), vm.name)
    if vmi is None or not vmis.running(vmi):
        return
    frozen = vmi.at("spec", "evictionStrategy").value
    if frozen != wanted.value:
        has = f"has {show(frozen)}" if frozen is not None else "has none"
        yield Finding(
            wanted.path,
            f"the running VMI still {has}, not {show(wanted.value)}, and a drain goes by that; restart the VM",
            value=(wanted.value, frozen),
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM,),
    reads=vmis.READS,
    action=Action.AUDIT,
    at_admission=False,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/defaults/defaults.go#setDefaultEvictionStrategy",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRestartRequired",
    ),
)
