"""A machine is excluded from draining.

**Why.** When the machine is deleted, also by a health check or by scaling down, its node is
switched off without a drain. VMs are cut off instead of migrating. Only the key of the annotation
counts: the value ``"false"`` does not disable it.

**Fix.** Remove ``machine.openshift.io/exclude-node-draining``, unless the node is already lost.
"""

from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.remediation import machines
from virt_admit.rule import MACHINE, Action, Context, Finding, Findings, Object, gather, names, rule


@rule(
    kinds=(MACHINE,),
    reads=vmis.READS,
    metadata=(machines.UNDRAINED,),
    action=Action.WARN,
    sources=("openshift/machine-api-operator:pkg/controller/machine/drain_controller.go",),
)
def check(machine: Object, context: Context) -> Findings:
    annotation = machine.annotation(machines.UNDRAINED)
    if annotation.present:
        known, _ = gather(
            vmis.on_node(context.cluster, machines.node_name(machine))
        )  # name only the VMs that are known
        affected = f" ({names((vmi.full_name for vmi in known), 45)})" if known else ""
        yield Finding(
            annotation.path,
            "with any value the machine is deleted without a drain, which cuts off its "
            f"VMs{affected}. Remove the annotation.",
        )
