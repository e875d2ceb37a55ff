"""A machine is excluded from draining.

**Why.** When it is deleted, also by a health check or by scaling down, its node is switched off without a drain: VMs are
cut off instead of moving. The annotation counts by being there; the value ``"false"`` does not switch it off.

**Fix.** Remove ``machine.openshift.io/exclude-node-draining``, unless the node is dead anyway.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import gather
from virt_admit.model.kinds import MACHINE
from virt_admit.model.kubevirt import vmis
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.model.remediation import machines
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(machine: Object, context: Context[NoParams]) -> Iterator[Finding]:
    annotation = machine.annotation(machines.UNDRAINED)
    if annotation.present:
        hit, _ = gather(vmis.on_node(context.cluster, machines.node_name(machine)))  # to name those that are known
        whom = names((vmi.full_name for vmi in hit), 60) if hit else "VMs"
        yield Finding(
            annotation.path,
            f"whatever its value, the node goes without a drain and {whom} are cut off; remove the annotation",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MACHINE,),
    reads=vmis.READS,
    metadata=(machines.UNDRAINED,),
    action=Action.WARN,
    check=check,
    sources=("openshift/machine-api-operator:pkg/controller/machine/drain_controller.go",),
)
