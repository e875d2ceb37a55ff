"""A virtual machine sets neither ``runStrategy`` nor ``running``.

**Why.** KubeVirt has no default for whether a VM runs: it rejects a VM that sets neither field. A
dry run or a CI job without KubeVirt would accept it.

**Fix.** Write ``runStrategy: Always`` for a VM that must survive the failure of its node, or
``Halted`` for a VM that an administrator starts manually.
"""

from virt_admit.model import cel
from virt_admit.model.kubevirt.instances import vms
from virt_admit.rule import POOL, VM, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(VM, POOL),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"!({cel.present(cel.VM_SPEC + '.?running')}) && "
                f"!({cel.present(cel.VM_SPEC + '.?runStrategy')}) && "
                f"{cel.is_map(cel.VM_SPEC + '.?template.?spec')}"
            ),
            path=f"{cel.VM_PATH} + 'runStrategy'",
            message=(
                "'neither runStrategy nor running is set, so KubeVirt rejects the VM. Write "
                "runStrategy: Always ' + '(restarts after a node failure) or Halted (stays off "
                "until it is started).'"
            ),
        ),
    ),
    sources=("kubevirt/kubevirt:vms-admitter.go#validateRunStrategy",),
)
def check(vm: Object, _: Context) -> Findings:
    spec = vms.vm_spec(vm)
    if spec["running"].present or spec["runStrategy"].present or not vms.vmi_spec(vm).is_map:
        return
    yield Finding(
        spec["runStrategy"].path,
        "neither runStrategy nor running is set, so KubeVirt rejects the VM. Write runStrategy: "
        "Always (restarts after a node failure) or Halted (stays off until it is started).",
        cause=Cause.REQUIRED,
    )
