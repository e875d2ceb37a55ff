"""The minimum CPU model has no effect.

**Why.** No component reads the field. HyperConverged ignores it since release 1.17, KubeVirt marks it as deprecated,
and the node labeller no longer filters CPU features by it.

**Fix.** Remove the field. To keep VMs off old nodes, name a CPU model or a feature in the VM.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    model = setting(obj, Setting.MIN_CPU_MODEL)
    if model.text:
        yield Finding(model.path, f"{show(model.text)} has no effect: KubeVirt no longer reads this field. Remove it.")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.5.2",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#KubeVirtConfiguration",
    ),
)
