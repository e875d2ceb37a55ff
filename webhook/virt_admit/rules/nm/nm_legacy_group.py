"""A NodeMaintenance of the group that its operator has left.

**Why.** ``nodemaintenance.kubevirt.io`` belongs to an operator that is no longer shipped with the virtualization
operator nor maintained: where it is not installed nothing happens, and where it is, its guard for etcd checks nothing.

**Fix.** Install the node maintenance operator on its own and write ``apiVersion: nodemaintenance.medik8s.io/v1beta1``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NM, NM_KUBEVIRT
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Operation, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if obj.group == NM_KUBEVIRT.group:
        yield Finding(
            obj["apiVersion"].path,
            "the operator moved to another group and is installed on its own; write nodemaintenance.medik8s.io/v1beta1",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NM, NM_KUBEVIRT),
    operations=(Operation.CREATE,),
    action=Action.WARN,
    check=check,
    sources=("OpenShift Virtualization, Nodes 10.1", "OpenShift Virtualization, Node maintenance 11.2.3"),
)
