"""The minimum CPU model has no effect.

**Why.** No component reads the field. HyperConverged ignores it since release 1.17, KubeVirt marks
it as deprecated, and the node labeller no longer filters CPU features by it.

**Fix.** Remove the field. To keep VMs off old nodes, name a CPU model or a feature in the VM.
"""

from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.5.2",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#KubeVirtConfiguration",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    model = setting(obj, Setting.MIN_CPU_MODEL)
    if model.text:
        yield Finding(
            model.path,
            f"{show(model.text)} has no effect: KubeVirt no longer reads this field. Remove it.",
        )
