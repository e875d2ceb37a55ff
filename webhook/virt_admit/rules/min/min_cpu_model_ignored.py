"""A minimum CPU model is set.

**Why.** Nothing reads it: HyperConverged ignores it since release 1.17, KubeVirt marks it deprecated, and features
are no longer filtered by it.

**Fix.** Remove it. To keep VMs off old nodes name a CPU model or a feature in the VM itself.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    model = setting(obj, Setting.MIN_CPU_MODEL)
    if model.text:
        yield Finding(model.path, f"{show(model.text)} has no effect, nothing reads this field any more; remove it")


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
