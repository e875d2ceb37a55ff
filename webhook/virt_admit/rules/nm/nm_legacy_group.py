"""A NodeMaintenance uses the legacy API group.

**Why.** ``nodemaintenance.kubevirt.io`` belongs to an operator that is neither maintained nor
shipped with the virtualization operator. Without that operator nothing happens. With it the etcd
quorum is not checked.

**Fix.** Install the Node Maintenance Operator separately and write ``apiVersion:
nodemaintenance.medik8s.io/v1beta1``.
"""

from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, rule


@rule(
    kinds=(NM, NM_KUBEVIRT),
    operations=(Operation.CREATE,),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Nodes 10.1",
        "OpenShift Virtualization, Node maintenance 11.2.3",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    if obj.group == NM_KUBEVIRT.group:
        yield Finding(
            obj["apiVersion"].path,
            "the operator of this API group is not maintained, so the node may never be drained. "
            "Use nodemaintenance.medik8s.io/v1beta1 of the Node Maintenance Operator.",
        )
