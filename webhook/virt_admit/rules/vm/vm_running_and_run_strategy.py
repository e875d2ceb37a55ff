"""A virtual machine sets both ``running`` and ``runStrategy``.

**Why.** The two fields mean the same. KubeVirt rejects a VM that sets both, even if they agree. A
dry run or a CI job without KubeVirt would accept it.

**Fix.** Keep ``runStrategy`` and remove ``running`` (``true`` means ``Always``, ``false`` means
``Halted``). ``kubectl apply`` does not remove a field that it does not manage: send
``running: null``, or edit the object.
"""

from virt_admit.model import cel
from virt_admit.model.kubevirt.instances import vms
from virt_admit.rule import POOL, VM, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(VM, POOL),
    only_with=("running",),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{cel.present(cel.VM_SPEC + '.?running')} && "
                f"{cel.present(cel.VM_SPEC + '.?runStrategy')} && "
                f"{cel.is_map(cel.VM_SPEC + '.?template.?spec')}"
            ),
            path=f"{cel.VM_PATH} + 'running'",
            message=(
                f"'running' + ({cel.VM_SPEC}.?running.orValue(null) == true ? ' (means Always)' : "
                "' (means Halted)') + ' and runStrategy are both set, but KubeVirt accepts only "
                "one. Keep runStrategy and remove running.'"
            ),
            value=(
                f"[{cel.VM_SPEC}.?running.orValue(null), {cel.VM_SPEC}.?runStrategy.orValue(null)]"
            ),
        ),
    ),
    sources=(
        "OpenShift Virtualization, Nodes 10.1.2",
        "kubevirt/kubevirt:vms-admitter.go#validateRunStrategy",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    spec = vms.vm_spec(vm)
    running, strategy = spec["running"], spec["runStrategy"]
    if not running.present or not strategy.present or not vms.vmi_spec(vm).is_map:
        return
    suggestion = " (means Always)" if running.value is True else " (means Halted)"
    remedy = "Keep runStrategy and remove running."
    if context.old is not None and vms.vm_spec(context.old)["running"].present:
        why = "kubectl apply keeps fields that it does not manage"
        remedy = f"Keep runStrategy and set running: null ({why})."
    yield Finding(
        running.path,
        f"running{suggestion} and runStrategy are both set, but KubeVirt accepts only one. "
        f"{remedy}",
        value=(running.value, strategy.value),
        cause=Cause.FORBIDDEN,
    )
